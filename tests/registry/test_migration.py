"""Older forms are read for ever: golden registries, and rules applied in order."""

import json
import shutil
from pathlib import Path

import pytest

from penstock import Registry, errors
from penstock.registry.manifest import FORM
from penstock.registry.migration import migrate, upgrade
from tests.registry.conftest import WriteRows

GOLDEN = Path(__file__).parent.parent / "golden" / "registry-1"


def test_a_registry_of_form_1_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Goal: what was registered years ago still opens. Method: a registry written once and committed."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    registry = Registry(tmp_path / "golden/registry")
    expected = json.loads((GOLDEN / "expected.json").read_text())
    registry.relocate("web@1", {registry.resolve("web@1").roots[0]: str(tmp_path / "golden/raw")})
    version = registry.resolve("web@gold")
    assert version.digest == expected["digest"]
    assert version.take(range(version.rows)) == expected["rows"]
    assert version.verify().ok
    assert registry.migrate("web@1").form_after == FORM


def test_the_same_files_registered_today_give_the_golden_digest(tmp_path: Path) -> None:
    """Goal: identity does not drift between releases. A failure here means that the form must be raised."""
    expected = json.loads((GOLDEN / "expected.json").read_text())
    version = Registry(tmp_path / "registry").register("web", GOLDEN / "raw")
    assert version.digest == expected["digest"]


def test_rules_are_applied_one_after_another() -> None:
    rules = {1: lambda d: {**d, "form": 2, "b": d["a"]}, 2: lambda d: {**d, "form": 3, "c": d["b"] + 1}}
    assert upgrade({"form": 1, "a": 1}, name="x", rules=rules, newest=3) == {
        "form": 3,
        "a": 1,
        "b": 1,
        "c": 2,
    }
    assert upgrade({"form": 3}, name="x", rules=rules, newest=3) == {"form": 3}
    with pytest.raises(errors.ManifestNewer):
        upgrade({"form": 4}, name="x", rules=rules, newest=3)


def test_a_current_version_stays_as_it_is(local: Registry, write_rows: WriteRows) -> None:
    version = local.register("web", write_rows("a.jsonl"))
    done = migrate(local, version)
    assert (done.before, done.after) == ("web@1", "web@1")
    assert len(local.versions("web")) == 1
