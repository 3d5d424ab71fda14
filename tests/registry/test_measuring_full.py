"""A disk that fills up while text is tokenised: said with place and bytes, and nothing is lost."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import DiskFull
from penstock.registry.tokenize.tokens import TokenLength
from tests.data.corpus import write_tokenizer

ROWS, WORDS, SHARDS = 50, 1_000, 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "penstock", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_said_and_what_is_finished_stays(tmp_path: Path, disk: Path) -> None:
    """Goal: a typed error with place and bytes; nothing lost, nothing left. Method: 0.8 MB of tokens on a disk of 0.5 MB,
    which is then made larger."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for shard in range(SHARDS):
        text = "".join(
            json.dumps({"text": " ".join([str((n + 7 * shard) % 1000)] * WORDS)}) + "\n" for n in range(ROWS)
        )
        (folder / f"{shard}.jsonl").write_text(text)
    registry = ps.Registry(disk / "registry")
    version = registry.register("web", folder)
    measure = TokenLength(write_tokenizer(tmp_path / "tokenizer.json"))
    with pytest.raises(DiskFull) as raised:
        registry.measure("web", measure)
    problem = raised.value
    assert (problem.place, problem.exit_code) == (str(disk / "registry"), 1)
    assert problem.needed_bytes > SHARDS * ROWS * WORDS
    assert 0 <= problem.free_bytes < 1 << 20
    assert f"{problem.needed_bytes:,} bytes" in str(problem)
    assert "continues there" in str(problem.hint)

    # The version is whole, work that was broken off has left nothing, and finished pieces are there.
    assert registry.resolve("web").verify().ok
    assert [path for path in (disk / "registry" / "work").rglob("*") if path.is_file()] == []
    finished = list((disk / "registry" / "columns").rglob("*.json"))
    assert all("column.json" not in path.name for path in finished)

    subprocess.run(["mount", "-o", "remount,size=32m", disk], check=True)
    column = registry.measure("web", measure)
    other = ps.Registry(tmp_path / "elsewhere")
    other.register("web", folder)
    assert column.parts == other.measure("web", measure).parts
    assert registry.payload(version, column).verify().ok
    shutil.rmtree(tmp_path / "elsewhere")


def test_an_era_that_finds_no_room_says_so_too(tmp_path: Path, disk: Path) -> None:
    text = "".join(json.dumps({"text": " ".join([str(n)] * WORDS)}) + "\n" for n in range(ROWS * SHARDS))
    (tmp_path / "rows.jsonl").write_text(text)
    registry = ps.Registry(disk / "registry")
    registry.register("web", [tmp_path / "rows.jsonl"])
    tokenizer = str(write_tokenizer(tmp_path / "tokenizer.json"))
    recipe = ps.Recipe(
        sources=[ps.Source("web")], batch=4, stages=[ps.Tokenize(tokenizer), ps.Pack(64)], measure="eras"
    )
    with pytest.raises(DiskFull), ps.open(recipe, registry=registry, threads=0) as feed:
        next(feed)
