"""I1: the same bytes under the same names are the same version, whatever was registered before."""

import itertools
import json
import shutil
import uuid
from pathlib import Path

import pytest

from penstock import Policy, Registry
from penstock.registry.version import Version
from tests.formats.test_megatron import write as write_tokens

_FOLDERS = ("", "en", "en/a", "de")


def write_tree(top: Path) -> None:
    """Four folders, three of them with data of their own."""
    for number, name in enumerate(("en/a/0.jsonl", "en/1.jsonl", "de/2.jsonl")):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"id": number * 10 + n}) + "\n" for n in range(4)))


def rows_of(version: Version) -> list[int]:
    return [row["id"] for row in version]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("tree") / "raw"
    write_tree(top)
    return top


@pytest.fixture(scope="module")
def fresh(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[int]]]:
    """Digest and rows of every folder, each in a registry that has seen nothing else."""
    versions = {}
    for folder in _FOLDERS:
        version = Registry(tmp_path_factory.mktemp("fresh")).register("x", tree / folder)
        versions[folder] = (version.digest, rows_of(version))
    return versions


def test_the_order_in_which_folders_are_registered_changes_nothing(
    tree: Path, fresh: dict[str, tuple[str, list[int]]]
) -> None:
    """Goal: I1. Method: every subset of the folders of a tree, in every order, in one registry; digests and rows are held
    against those of registries that have seen nothing else."""
    orders = [
        order for count in range(2, len(_FOLDERS) + 1) for order in itertools.permutations(_FOLDERS, count)
    ]
    assert len(orders) == 60
    for order in orders:
        registry = Registry(f"memory://{uuid.uuid4().hex}")
        for folder in order:
            version = registry.register(f"of-{folder.replace('/', '-') or 'top'}", tree / folder)
            assert (version.digest, rows_of(version)) == fresh[folder], f"{folder!r} after {order}"


def test_bad_rows_and_companions_have_the_names_of_the_root_they_are_below(tmp_path: Path) -> None:
    (tmp_path / "raw/en").mkdir(parents=True)
    (tmp_path / "raw/en/a.jsonl").write_text('{"id": 1}\n{broken\n')
    (tmp_path / "raw/b.jsonl").write_text('{"id": 2}\n')
    (tmp_path / "tokens/en").mkdir(parents=True)
    for name in ("en/a", "b"):
        write_tokens(tmp_path / f"tokens/{name}")
    registry = Registry(tmp_path / "registry")
    policy = Policy(skip_bad=1)
    assert registry.register("en", tmp_path / "raw/en", policy=policy).manifest.skipped[0].shard == "a.jsonl"
    version = registry.register("all", tmp_path / "raw", policy=policy)
    assert [bad.shard for bad in version.manifest.skipped] == ["en/a.jsonl"]
    registry.register("tokens-en", tmp_path / "tokens/en")
    tokens = registry.register("tokens", tmp_path / "tokens")
    names = [companion.name for shard in tokens.manifest.shards for companion in shard.companions]
    assert names == ["b.idx", "en/a.idx"]
    assert tokens.verify().ok
    assert tokens.digest == Registry(tmp_path / "other").register("tokens", tmp_path / "tokens").digest


def test_media_are_named_below_the_root_of_their_version(tmp_path: Path) -> None:
    for name in ("raw/en/a.png", "raw/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" + name.encode())
    registry = Registry(tmp_path / "registry")
    assert [row["path"] for row in registry.register("en", tmp_path / "raw/en")] == ["a.png"]
    assert [row["path"] for row in registry.register("all", tmp_path / "raw")] == ["b.png", "en/a.png"]


def test_a_moved_tree_is_the_same_version(tree: Path, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    first = registry.register("web", tree)
    shutil.copytree(tree, tmp_path / "100% C#? [old] %41/raw")
    again = registry.register("web", tmp_path / "100% C#? [old] %41/raw")
    assert again.digest == first.digest
    alone = Registry(tmp_path / "other").register("web", tmp_path / "100% C#? [old] %41/raw")
    assert alone.digest == first.digest
    assert rows_of(Registry(tmp_path / "other").resolve("web")) == rows_of(first)
