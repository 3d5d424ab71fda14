"""`--ship`: what is packed of a directory, and what is refused before anything is started."""

import json
import os
import struct
import subprocess
import sys
import tempfile
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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_file_that_may_not_be_read_is_named() -> None:
    """Method: as a user to whom it is closed, in a place where that user may be."""
    with tempfile.TemporaryDirectory(prefix="penstock-ship-") as place:
        _refuse_secret(Path(place))


def _refuse_secret(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "secret").write_text("1")
    (folder / "secret").chmod(0)
    tmp_path.chmod(0o777)
    script = (
        "import os, sys; from pathlib import Path; from penstock.process.hosts.shipping.packed_directory import pack;"
        " os.setgid(12345); os.setuid(12345); pack(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    words = [sys.executable, "-c", script, str(folder), str(tmp_path / "pack")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "secret cannot be read (Permission denied)" in done.stderr, done.stderr


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
