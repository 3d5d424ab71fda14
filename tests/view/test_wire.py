"""What crosses to the browser: every route is declared, answers have the declared form, and pages have what is generated from it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute, Route

from penstock.view.web.batch_routes import batch_routes
from penstock.view.web.dataset_routes import dataset_routes
from penstock.view.web.host_routes import host_routes
from penstock.view.web.machine_routes import machine_routes
from penstock.view.web.run_routes import run_routes
from penstock.view.wire.answers import Answers
from penstock.view.wire.schema import for_pages, schema
from tests.view.answer_check import BYTES, check_body


def generate(root: Path, into: Path, python: Path | None = None) -> None:
    """Run the command that writes the generated files, with our declarations or those of a copy."""
    command = [sys.executable, str(root / "workshop/wire.py"), "--into", str(into)]
    environment = {**os.environ, "PYTHONPATH": str(python or root / "python")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_route_is_declared() -> None:
    routes: list[BaseRoute] = [
        *machine_routes(),
        *dataset_routes(),
        *batch_routes(),
        *run_routes(),
        *host_routes(),
    ]
    paths = {
        route.path.removeprefix("/api/").replace(":int", "") for route in routes if isinstance(route, Route)
    }

    assert paths - BYTES == set(Answers.__annotations__) - {"error"}


def test_what_the_pages_are_compiled_with_is_what_is_declared(root: Path, tmp_path: Path) -> None:
    generate(root, tmp_path)

    for name in ("types.ts", "schema.json"):
        committed = (root / "web/src/wire" / name).read_text()
        assert (tmp_path / name).read_text() == committed, f"web/src/wire/{name} is old: make wire"


def test_a_field_renamed_in_python_changes_what_is_generated(root: Path, tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("static", "__pycache__", "bin")
    shutil.copytree(root / "python", tmp_path / "python", ignore=ignore)
    declared = tmp_path / "python/penstock/view/wire/dataset_answers.py"
    declared.write_text(declared.read_text().replace("    created: str\n", "    made: str\n"))

    generate(root, tmp_path / "wire", tmp_path / "python")

    for name, sign in (("types.ts", "  made: string;"), ("schema.json", '"made": {"type": "string"}')):
        assert sign in (tmp_path / "wire" / name).read_text()
        assert sign not in (root / "web/src/wire" / name).read_text()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"shards": [], "start": 0}, "'of' is a required property"),
        ({"shards": [], "start": 0, "of": 0, "more": 1}, "'more' was unexpected"),
        ({"shards": [], "start": "0", "of": 0}, "'0' is not of type 'integer'"),
        ({"shards": [{"name": "a"}], "start": 0, "of": 1}, "$.shards[0]"),
    ],
)
def test_an_answer_that_is_declared_otherwise_fails(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_body("shards", answer)

    assert words in str(caught.value)


def test_a_dataset_is_either_readable_or_a_problem() -> None:
    def listed(line: dict[str, Any]) -> dict[str, Any]:
        return {"registry": "", "datasets": [line], "left_out": 0, "command": ""}

    check_body("datasets", listed({"name": "web", "problem": "damaged"}))
    with pytest.raises(AssertionError):
        check_body("datasets", listed({"name": "web", "problem": "damaged", "rows": 3}))


def test_pages_carry_no_words_and_let_more_through() -> None:
    part = for_pages(schema())

    assert "description" not in part["definitions"]["ShardPage"]
    assert "additionalProperties" not in part["definitions"]["ShardPage"]
    # A field may be called as a word of JSON schema is.
    assert set(part["definitions"]["CellValue"]["properties"]) >= {"items", "text"}
    assert part["definitions"]["VersionList"]["properties"]["tags"]["additionalProperties"] == {
        "type": "integer"
    }
