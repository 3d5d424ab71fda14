"""`--ship`: what is packed of a directory, and what is refused before anything is started."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors.process import DirectoryUnshippable
from penstock.process.hosts.shipping import packed_directory
from penstock.process.hosts.shipping.packed_directory import COPY, SHIPMENT, pack, sweep


def _manifest(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    (length,) = struct.unpack_from(">Q", content)
    entries: list[dict[str, Any]] = json.loads(content[8 : 8 + length])["entries"]
    assert len(content) == 8 + length + sum(entry.get("size", 0) for entry in entries)
    return entries


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def _refused(folder: Path, to: Path) -> DirectoryUnshippable:
    with pytest.raises(DirectoryUnshippable) as told:
        pack(folder, to)
    assert not to.exists()
    return told.value


def test_git_says_what_is_sent_and_modes_and_links_are_kept(tmp_path: Path) -> None:
    """Method: a tracked, an untracked, an ignored and a removed file, a link, names with a newline and not of ASCII."""
    folder = tmp_path / "work"
    (folder / "lib").mkdir(parents=True)
    _git(folder, "init", "-q")
    for name, content in {"train.py": "1", "lib/a.py": "2", "gone": "3", ".gitignore": "*.pt\n"}.items():
        (folder / name).write_text(content)
    _git(folder, "add", ".")
    (folder / "gone").unlink()
    (folder / "new\nüml").write_text("4")
    (folder / "model.pt").write_text("5")
    (folder / "train.py").chmod(0o755)
    (folder / "lib" / "link").symlink_to("../train.py")
    packed = pack(folder, tmp_path / "pack")
    entries = {entry["path"]: entry for entry in _manifest(tmp_path / "pack")}
    assert set(entries) == {"train.py", "lib/a.py", ".gitignore", "new\nüml", "lib/link"}
    assert entries["train.py"]["mode"] == 0o755
    assert entries["lib/link"] == {"path": "lib/link", "link": "../train.py"}
    assert packed.file_count == 4
    assert pack(folder, tmp_path / "again").digest == packed.digest


def test_repositories_inside_of_the_directory_are_sent_as_git_lists_each_of_them(tmp_path: Path) -> None:
    """Method: a submodule, one that was not fetched, a clone that nobody added, and a link to a directory; each repository ignores other files."""
    other, folder = tmp_path / "other", tmp_path / "work"
    for place in (other, folder):
        place.mkdir()
        _git(place, "init", "-q")
    (other / "lib.py").write_text("1")
    (other / ".gitignore").write_text("*.so\n")
    _commit(other)
    (folder / ".gitignore").write_text("*.pt\n")
    _git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    _commit(folder)
    _git(folder, "clone", "-q", str(other), "clone")
    for place in ("sub", "clone"):
        (folder / place / "built.so").write_text("2")
        (folder / place / "mine.py").write_text("3")
    (folder / "sub" / "model.pt").write_text("4")
    (folder / "there").symlink_to("sub")
    pack(folder, tmp_path / "pack")
    of_each = [
        f"{place}/{name}" for place in ("clone", "sub") for name in (".gitignore", "lib.py", "mine.py")
    ]
    paths = [entry["path"] for entry in _manifest(tmp_path / "pack")]
    assert paths == sorted([".gitignore", ".gitmodules", "sub/model.pt", "there", *of_each])

    _git(folder, "submodule", "--quiet", "deinit", "--force", "sub")
    pack(folder, tmp_path / "again")
    (empty,) = (entry for entry in _manifest(tmp_path / "again") if entry["path"].startswith("sub"))
    assert empty == {"path": "sub", "is_directory": True, "mode": empty["mode"]}


def _commit(folder: Path) -> None:
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all")


def test_a_directory_of_which_nothing_is_sent_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "out").mkdir(parents=True)
    _git(folder, "init", "-q")
    (folder / ".gitignore").write_text("out\n")
    (folder / "out" / "train.py").write_text("1")
    assert "git ignores all of it" in str(_refused(folder / "out", tmp_path / "pack"))


def test_a_place_to_run_of_which_nothing_is_sent_is_refused(tmp_path: Path) -> None:
    """Method: git ignores the directory in which the command was started."""
    folder = tmp_path / "work"
    (folder / "out").mkdir(parents=True)
    _git(folder, "init", "-q")
    (folder / ".gitignore").write_text("out\n")
    (folder / "out" / "train.py").write_text("1")
    with pytest.raises(DirectoryUnshippable, match="ranks would run in out, and nothing of it is sent"):
        pack(folder, tmp_path / "pack", place="out")


def test_without_git_all_files_are_sent(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "empty").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("1")
    (folder / "there").symlink_to("data")
    pack(folder, tmp_path / "pack")
    assert [entry["path"] for entry in _manifest(tmp_path / "pack")] == ["data/x", "empty", "there"]


def test_everything_that_cannot_be_sent_is_named_at_once(tmp_path: Path) -> None:
    """Method: links that lead out, a pipe, a name that is no text, a file that changes; one error names them all."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "out").symlink_to("../elsewhere")
    (folder / "root").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"bad-\xff")).write_text("1")
    told = str(_refused(folder, tmp_path / "pack"))
    for words in (
        "out is a link that leads out, to ../elsewhere",
        "root is a link that leads out, to /etc/passwd",
        "pipe is neither a file nor a directory nor a link",
        "has a name that is not text",
    ):
        assert words in told, told
    assert "is not a directory" in str(_refused(tmp_path / "missing", tmp_path / "pack"))


def test_what_is_too_much_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: a sparse file beyond the limit; more files than a smaller limit."""
    folder = tmp_path / "work"
    folder.mkdir()
    with (folder / "model.bin").open("wb") as file:
        file.truncate(300 << 20)
    told = _refused(folder, tmp_path / "pack")
    assert "its files have 300 MiB, 256 at most" in str(told)
    assert "model.bin (300 MiB)" in str(told)
    assert told.hint is not None
    assert ".gitignore" in told.hint
    (folder / "model.bin").unlink()
    monkeypatch.setattr(packed_directory, "ENTRIES_MAX", 10)
    for number in range(11):
        (folder / str(number)).touch()
    assert "it has more than 10 files" in str(_refused(folder, tmp_path / "pack"))


@pytest.mark.parametrize("count", [2_000, 20_000])
@pytest.mark.parametrize("with_git", [False, True])
def test_memory_does_not_grow_with_a_directory_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, with_git: bool
) -> None:
    """Goal: a directory of a million files is refused soon. Method: a thousand are allowed; what Python holds at most is the same for any number."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "0").touch()
    for number in range(1, count):
        os.link(folder / "0", folder / str(number))
    if with_git:
        _git(folder, "init", "-q")
    monkeypatch.setattr(packed_directory, "ENTRIES_MAX", 1000)
    tracemalloc.start()
    try:
        assert "it has more than 1,000 files" in str(_refused(folder, tmp_path / "pack"))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_names_that_are_too_long_in_all_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:0200}").touch()
    monkeypatch.setattr(packed_directory, "MANIFEST_BYTES_MAX", 3000)
    assert "the names of its 20 files have" in str(_refused(folder, tmp_path / "pack"))


AS_ANOTHER = (
    "import os, sys; from pathlib import Path; from penstock.process.hosts.shipping.packed_directory import pack;"
    " os.setgid(12345); os.setuid(12345); os.environ['HOME'] = '/nowhere'; pack(Path(sys.argv[1]), Path(sys.argv[2]))"
)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Where any user may be."""
    with tempfile.TemporaryDirectory(prefix="penstock-ship-") as place:
        Path(place).chmod(0o777)
        (Path(place) / "work").mkdir()
        yield Path(place)


def _refused_as_another(place: Path) -> str:
    words = [sys.executable, "-c", AS_ANOTHER, str(place / "work"), str(place / "pack")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert not (place / "pack").exists()
    return done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("with_git", [False, True])
def test_what_may_not_be_read_is_named(open_place: Path, with_git: bool) -> None:
    """Method: as a user to whom a file, or a directory that git only warns about, is closed."""
    folder = open_place / "work"
    if with_git:
        _git(folder, "init", "-q")
        subprocess.run(["chown", "-R", "12345", str(folder)], check=True)
    (folder / "secret").write_text("1")
    (folder / "secret").chmod(0)
    assert "secret cannot be read (Permission denied)" in _refused_as_another(open_place)
    (folder / "secret").unlink()
    (folder / "closed").mkdir(mode=0o700)
    said = _refused_as_another(open_place)
    assert "closed" in said
    assert "Permission denied" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_repository_that_git_does_not_trust_is_not_sent_with_all_that_it_ignores(open_place: Path) -> None:
    """Goal: no silence. Method: the checkout belongs to root, and another user ships it."""
    _git(open_place / "work", "init", "-q")
    said = _refused_as_another(open_place)
    assert "dubious ownership" in said
    assert "git does not say what belongs to it" in said


def test_copies_of_jobs_that_are_over_keep_a_budget(tmp_path: Path) -> None:
    """Method: three directories of jobs that say nothing any more, each of 3 KB; 7 KB may stay."""
    for number in range(3):
        job = tmp_path / f"job-{number}"
        (job / COPY).mkdir(parents=True)
        (job / "job.json").write_text("{}")
        (job / "state.json").write_text("not a state")
        (job / SHIPMENT).write_bytes(b"x" * 1000)
        (job / COPY / "file").write_bytes(b"x" * 2000)
        os.utime(job / SHIPMENT, (1000 + number, 1000 + number))
    assert sweep(tmp_path, kept_bytes_max=7000) == 3000
    left = [number for number in range(3) if (tmp_path / f"job-{number}" / COPY).exists()]
    assert left == [1, 2]
    assert sweep(tmp_path, kept_bytes_max=7000) == 0
