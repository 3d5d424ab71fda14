"""D6 of registrations: files that change while they are registered, processes that are killed, places that are wrong or closed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Policy, Registry, errors
from penstock.registry.scan.scan import ScanProgress, Watch, scan_shard
from penstock.registry.scan.work_folder import sweep, work_folder
from penstock.registry.selection.choice import choose
from tests.registry.conftest import WriteRows


def once(path: Path, data: bytes) -> Watch:
    """A watch that appends to a file at the first report of its scan, as a writer beside us would."""
    done = []

    def watch(now: ScanProgress) -> None:
        if not done:
            done.append(now)
            with path.open("ab") as file:
                file.write(data)

    return watch


@pytest.mark.parametrize("data", [b'{"id": 100, "text": "late"}\n', b'{"id": 100, "te'])
def test_a_file_that_grows_is_being_written(local: Registry, write_rows: WriteRows, data: bytes) -> None:
    raw = write_rows("a.jsonl", 0, 100)
    with pytest.raises(errors.FileChanging, match="is being written") as caught:
        local.register("web", raw, watch=once(raw, data))
    assert caught.value.path == str(raw)
    assert local.datasets() == []
    if data.endswith(b"\n"):
        assert local.register("web", raw).rows == 101


def test_a_bad_row_of_a_file_that_is_written_is_no_news(local: Registry, tmp_path: Path) -> None:
    """Goal: who registers too early is told so, and not to mend the file. Method: between finding and scanning it, a file
    gets half a line."""
    raw = tmp_path / "a.jsonl"
    raw.write_text('{"id": 1}\n')
    (shard,) = choose([str(raw)], None, Policy()).shards
    with raw.open("a") as file:
        file.write('{"id": 2, "te')
    with pytest.raises(errors.FileChanging, match="is being written") as caught:
        scan_shard(shard, "jsonl", Policy(), local.store, lambda *_: None)
    assert isinstance(caught.value.__cause__, errors.BadRow)


def test_a_file_that_goes_away_is_named(local: Registry, tmp_path: Path) -> None:
    raw = tmp_path / "a.jsonl"
    raw.write_text('{"id": 1}\n')
    (shard,) = choose([str(raw)], None, Policy()).shards
    raw.unlink()
    with pytest.raises(errors.FileChanging, match="it is gone"):
        scan_shard(shard, "jsonl", Policy(), local.store, lambda *_: None)


def test_a_member_of_a_folder_that_changes_is_named(local: Registry, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(errors.FileChanging) as caught:
        local.register("web", tmp_path / "?.png", watch=once(tmp_path / "b.png", b"more"))
    assert caught.value.path == str(tmp_path / "b.png")


def test_a_chmod_or_a_hard_link_is_no_writing(local: Registry, write_rows: WriteRows, tmp_path: Path) -> None:
    raw = write_rows("a.jsonl", 0, 100)

    def watch(now: ScanProgress) -> None:
        if not (tmp_path / "backup").exists():
            os.link(raw, tmp_path / "backup")

    assert local.register("web", raw, watch=watch).rows == 100


_DIE = """
import os, signal, sys
import penstock
def watch(now):
    os.kill(os.getpid(), signal.SIGKILL)
penstock.Registry(sys.argv[1]).register("web", sys.argv[2], watch=watch)
"""


def test_what_killed_registrations_leave_is_swept_and_what_lives_is_not(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    raw = write_rows("a.jsonl", 0, 1000)
    dead = subprocess.run([sys.executable, "-c", _DIE, local.url, str(raw)], timeout=120, check=False)
    assert dead.returncode == -signal.SIGKILL
    work = tmp_path / "registry/work"
    assert len(list(work.iterdir())) == 2
    old = work / "penstock-scan-of-an-earlier-release"
    old.mkdir()
    os.utime(old, (0, 0))
    (work / "penstock-measure-of-somebody").mkdir()
    with work_folder(local.store, "scan") as alive:
        (alive / "index").write_text("half")
        local.register("web", raw)
        assert (alive / "index").exists()
        assert sorted(path.name for path in work.iterdir()) == sorted(
            [alive.name, f"{alive.name}.lock", "penstock-measure-of-somebody"]
        )
    assert [path.name for path in work.iterdir()] == ["penstock-measure-of-somebody"]
    assert sweep(local.store) == 0


def test_a_wrong_old_place_changes_nothing_and_says_so(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    version = local.register("web", write_rows("a.jsonl").parent)
    right, wrong = str(tmp_path / "raw"), str(tmp_path / "rwa")
    for moves in ({wrong: "/new"}, {right: "/new", wrong: "/other"}, {str(tmp_path / "ra"): "/new"}):
        with pytest.raises(errors.PlaceUnknown) as caught:
            local.relocate("web@1", moves)
        assert str(tmp_path / "raw") in (caught.value.hint or "")
        assert local.resolve("web").roots == version.roots
    assert local.relocate("web@1", {str(tmp_path): "/new"}).roots[0] == "file:///new/raw"


def test_folders_with_any_name_can_be_moved(local: Registry, tmp_path: Path) -> None:
    odd = tmp_path / "a b %41 #1?"
    odd.mkdir()
    (odd / "x y.jsonl").write_text('{"id": 1}\n')
    local.register("web", odd)
    shutil.move(odd, tmp_path / "c d %42")
    local.relocate("web", {str(odd): str(tmp_path / "c d %42")})
    assert local.resolve("web")[0] == {"id": 1}


def test_a_registry_that_cannot_be_written_says_so(write_rows: WriteRows, tmp_path: Path) -> None:
    raw = write_rows("a.jsonl")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(errors.StoreFailed, match="cannot write"):
        Registry(tmp_path / "file").register("web", raw)
    # The kernel's own tree can be written by nobody.
    with pytest.raises(errors.StoreRefusal, match="write /proc/penstock"):
        Registry("/proc/penstock").register("web", raw)


def test_the_account_is_in_json_and_in_words(
    write_rows: WriteRows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.main import main

    write_rows("a.jsonl", 0, 3)
    for number in range(6):
        (tmp_path / f"raw/.{number}.crc").touch()
    words = ["data", "register", "web", str(tmp_path / "raw"), "--registry", str(tmp_path / "registry")]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "files: 1 taken, 6 left out" in said
    assert "left out: .0.crc, .1.crc, .2.crc and 3 more (hidden: its name begins with a dot)" in said
    assert main([*words, "--json"]) == 0
    account = json.loads(capsys.readouterr().out)["account"]
    assert (account["files"], len(account["left_out"])) == (1, 6)
    assert account["left_out"][0] == {"name": ".0.crc", "reason": "hidden: its name begins with a dot"}
    assert main([*words, "--strict"]) == 2
    assert "6 would be left out" in capsys.readouterr().err
    assert main([*words, "--split", "train"]) == 2
    assert "has no split 'train'" in capsys.readouterr().err


def test_strict_is_no_reason_to_scan_again(local: Registry, write_rows: WriteRows) -> None:
    raw = write_rows("a.jsonl")
    local.register("web", raw)
    before = {entry.name for entry in local.store.entries("scans")}
    local.register("web", raw, policy=Policy(strict=True, split=None))
    assert {entry.name for entry in local.store.entries("scans")} == before
