"""D4 over time: bytes are checked at first touch, and again after a change that shows.

A reader looks at a file again when it was last looked at more than a second ago. So these tests read until that second is over;
how often they read before it makes no difference to what they find.
"""

import io
import itertools
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptShard
from penstock.registry import Registry
from tests.data.corpus import Corpus, some_documents

#: More than the bound, by far: whoever does not find a change in this time never will.
PATIENCE_S = 60.0


def read_until(read: Callable[[], Any], over: Callable[[], bool]) -> None:
    """Read again and again until something is over."""
    deadline = time.monotonic() + PATIENCE_S
    while not over():
        assert time.monotonic() < deadline, "nothing was noticed"
        read()


def found_by(read: Callable[[], Any]) -> CorruptShard:
    """What reading finds in the end."""
    with pytest.raises(CorruptShard) as raised:
        read_until(read, lambda: False)
    return raised.value


def a_second() -> Callable[[], bool]:
    """Whether two looks must have happened since now."""
    end = time.monotonic() + 2.1
    return lambda: time.monotonic() > end


def flip_in_place(path: Path, byte: int, bit: int = 0, *, times: tuple[int, int] | None = None) -> None:
    """Change one bit of a file without making another file of it; ``times`` sets access and write time back, as `touch -d` does."""
    with path.open("r+b") as file:
        file.seek(byte)
        old = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([old ^ 1 << bit]))
    if times is not None:
        os.utime(path, ns=times)


@pytest.fixture
def arrays(tmp_path: Path) -> tuple[Registry, Path]:
    """Tokens as an array of several blocks, which a feed reads where it lies."""
    path = tmp_path / "raw" / "tokens.npy"
    path.parent.mkdir()
    tokens = np.arange(8_192 * 64, dtype=np.uint16).reshape(8_192, 64)
    np.save(path, tokens)
    registry = Registry(tmp_path / "registry")
    registry.register("tokens", path)
    return registry, path


def endless(*, batch: int = 64) -> ps.Recipe:
    return ps.Recipe(sources=[ps.Source("tokens@1")], stages=[], seed=3, batch=batch)


def records(**fields: Any) -> ps.Recipe:
    return ps.Recipe(sources=[ps.Source("web@1")], seed=3, batch=20, **fields)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("backdated", [False, True])
def test_a_feed_finds_a_byte_that_changes_under_it_and_names_the_steps(
    arrays: tuple[Registry, Path], threads: int, backdated: bool
) -> None:
    """Goal: a change in place is not delivered for ever. Method: read an epoch, flip a bit, go on until it raises."""
    registry, path = arrays
    with ps.open(endless(), registry=registry, threads=threads) as feed:
        for _ in range(8_192 // 64):
            next(feed)
        before, status = feed.cursor.step, path.stat()
        times = (status.st_atime_ns, status.st_mtime_ns) if backdated else None
        flip_in_place(path, 200_000, times=times)
        problem = found_by(lambda: next(feed))
        assert (problem.shard, problem.offset) == (str(path), 196_608)
        assert problem.steps is not None
        first, last = problem.steps
        assert 0 <= first <= last < feed.cursor.step
        assert last >= before - 1, "steps that were made before the change was seen are named"
        assert f"steps {first} to {last} read it" in str(problem)
        if threads == 0:
            with pytest.raises(CorruptShard):
                next(feed)
            flip_in_place(path, 200_000)
            assert next(feed).step == feed.cursor.step - 1, "mended, it goes on where it was"


def test_changes_of_no_byte_raise_nothing(arrays: tuple[Registry, Path], tmp_path: Path) -> None:
    """Goal: only bytes that differ are damage. Method: chmod, a hard link, `touch`, the same bytes again, growth, a new name."""
    registry, path = arrays
    with ps.open(endless(), registry=registry, threads=1) as feed:
        for _ in range(200):
            next(feed)
        path.chmod(0o600)
        os.link(path, tmp_path / "backup")
        os.utime(path)
        content = path.read_bytes()
        with path.open("r+b") as file:
            file.write(content)
        read_until(lambda: next(feed), a_second())
        with path.open("ab") as file:
            file.write(b"more")
        read_until(lambda: next(feed), a_second())
        path.rename(tmp_path / "elsewhere")
        read_until(lambda: next(feed), a_second())


def test_a_file_that_is_cut_and_filled_again_is_found(arrays: tuple[Registry, Path]) -> None:
    """Goal: neither zeros behind a cut nor other bytes of the same length are delivered for long. Method: truncate in place."""
    registry, path = arrays
    with ps.open(endless(), registry=registry, threads=0) as feed:
        for _ in range(200):
            next(feed)
        size = path.stat().st_size
        os.truncate(path, 100_000)
        assert found_by(lambda: next(feed)).shard == str(path)
        os.truncate(path, size)
        assert found_by(lambda: next(feed)).shard == str(path)


def test_rows_and_records_are_looked_at_too(own: Corpus) -> None:
    """Goal: the same for rows read alone and for feeds of records. Method: change a digit, so that rows stay rows."""
    own.add("web", some_documents(400, longest=30, seed=5))
    path = own.folder / "web" / "000.jsonl"
    version = own.registry.resolve("web@1")
    rows = version.take(range(400))
    with ps.open(records(), registry=own.registry, threads=0) as feed:
        for _ in range(20):
            next(feed)
        flip_in_place(path, path.read_bytes().index(b"0"))
        problem = found_by(lambda: next(feed))
        assert (problem.shard, problem.offset) == (str(path), 0)
        assert problem.steps is not None
        assert problem.steps[0] <= problem.steps[1] < feed.cursor.step
    problem = found_by(lambda: version.take(range(400)))
    assert (problem.shard, problem.offset, problem.steps) == (str(path), 0, None)
    flip_in_place(path, path.read_bytes().index(b"1"))
    assert version.take(range(400)) == rows


@pytest.mark.parametrize("undecodable", ["raise", "mask"])
def test_damage_is_never_counted_as_a_row_that_cannot_be_decoded(own: Corpus, undecodable: Any) -> None:
    """Goal: a change that breaks a row is damage at once, even where such rows are masked. Method: break the braces of rows."""
    own.add("web", some_documents(400, longest=30, seed=5))
    path = own.folder / "web" / "000.jsonl"
    recipe = records(undecodable=undecodable)
    with ps.open(recipe, registry=own.registry, threads=0) as feed:
        for _ in range(20):
            next(feed)
        flip_in_place(path, 0, bit=2)
        with pytest.raises(CorruptShard) as raised:
            list(itertools.islice(feed, 20))
        assert (raised.value.shard, raised.value.offset) == (str(path), 0)


@pytest.mark.parametrize("undecodable", ["raise", "mask"])
def test_damage_that_a_format_notices_first_is_damage_at_once(own: Corpus, undecodable: Any) -> None:
    """Goal: a header that makes no sense names block and steps, too. Method: an archive whose headers change under a reader."""
    path = own.folder / "a-000.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(400):
            member = tarfile.TarInfo(f"{number:05d}.json")
            member.size = 100
            archive.addfile(member, io.BytesIO(b'{"n": "%s"}' % (b"x" * 91)))
    version = own.registry.register("web", path)
    rows = version.take(range(400))
    with ps.open(records(undecodable=undecodable), registry=own.registry, threads=0) as feed:
        for _ in range(20):
            next(feed)
        for row in range(400):
            flip_in_place(path, row * 1024)
        with pytest.raises(CorruptShard) as raised:
            list(itertools.islice(feed, 20))
    assert (raised.value.shard, raised.value.offset) == (str(path), 0)
    assert raised.value.steps is not None
    with pytest.raises(CorruptShard):
        version.take(range(400))
    for row in range(400):
        flip_in_place(path, row * 1024)
    assert version.take(range(400)) == rows


def test_a_member_of_a_folder_is_checked_whenever_it_is_read(tmp_path: Path) -> None:
    """Goal: folders of small files have no second in which a change passes. Method: read, change one file, read."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes([number]) * 100_000)
    version = Registry(tmp_path / "registry").register("images", folder, format="files")
    assert len(version.take(range(3))) == 3
    flip_in_place(folder / "1.png", 70_000)
    assert len(version.take([0, 2])) == 2
    with pytest.raises(CorruptShard) as raised:
        version.take([1])
    assert (raised.value.shard, raised.value.offset) == (str(folder / "1.png"), 65_536)


def test_an_open_version_looks_in_the_child_of_a_fork(arrays: tuple[Registry, Path]) -> None:
    """Goal: a forked reader looks for itself, whatever its parent was doing. Method: fork with an open version, change, read."""
    registry, path = arrays
    version = registry.resolve("tokens@1")
    version.take(range(0, 8_192, 64))
    child = os.fork()
    if child == 0:
        try:
            flip_in_place(path, 100_000)
            found_by(lambda: version.take(range(0, 8_192, 64)))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
