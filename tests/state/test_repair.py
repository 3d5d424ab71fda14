"""A place is whole again after the loss or flip of any single file of it, and after worse where the data is still there."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.cli.main import main
from penstock.errors import Fenced, PlaceInUse
from penstock.state.inspect.verify import Verifier
from penstock.state.log import record_copies
from penstock.state.log.commit import quarantine
from penstock.state.log.history import record_name
from penstock.state.log.log import Log
from penstock.state.log.pins import pin
from penstock.state.log.record_copies import copy_name
from penstock.state.log.records import Lost
from penstock.state.log.repair import repair
from penstock.store import Store, open_store
from tests.conftest import ROOT


def tree(step: int) -> dict[str, Any]:
    return {"frozen": np.arange(3000.0), "w": np.full(2000, float(step)), "step": step}


def make(place: Path | str) -> None:
    """Two incarnations, five checkpoints, of which one is retired, one quarantined and one pinned."""
    with ps.Checkpoints(place) as ck:
        for step in (1, 2, 3):
            ck.save(step, tree(step)).wait()
        ck.prune(ps.Keep(last=2))
        quarantine(ck.log, 2, "gone back behind", rank=0, at=0.0)
    with ps.Checkpoints(place) as ck:
        ck.resume(tree(0))
        for step in (4, 5):
            ck.save(step, tree(step)).wait()
        pin(ck.log, ck.at(4).number, "file:///other", at=0.0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def lose(path: Path) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path], None]] = [flip, lose]


def newest(place: Path) -> int:
    """The step that a new incarnation resumes from, with the right contents."""
    into = tree(0)
    with ps.Checkpoints(place) as ck:
        checkpoint = ck.resume(into)
        assert checkpoint is not None
        assert np.array_equal(into["w"], tree(checkpoint.step)["w"])
        assert np.array_equal(into["frozen"], tree(0)["frozen"])
        return checkpoint.step


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place of which tests damage copies. Pages are small, so that there are some."""
    place = tmp_path_factory.mktemp("original") / "place"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_copies, "PAGE_SIZES", (16, 4))
        make(place)
    return place


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_copies, "PAGE_SIZES", (16, 4))


def test_a_whole_place_needs_no_repair(original: Path, tmp_path: Path, small_pages: None) -> None:
    place = shutil.copytree(original, tmp_path / "place")
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert repair(open_store(place), patience_s=0).nothing
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_every_single_loss_and_flip_of_a_file_is_repaired(
    original: Path, quick_path: Path, small_pages: None
) -> None:
    """Goal: no single file of the log or of the manifests matters. Method: each file that is not data, lost and flipped; the place reads the
    same before a repair, and has all its copies after it."""
    expected = [
        (checkpoint.step, checkpoint.damage) for checkpoint in ps.Checkpoints(original, read_only=True).list()
    ]
    names = [path.relative_to(original) for path in sorted(original.rglob("*")) if path.is_file()]
    names = [name for name in names if name.parts[0] in ("log", "copies", "pages", "manifests")]
    assert len(names) > 20
    for at, (name, damage) in enumerate(itertools.product(names, DAMAGES)):
        place = shutil.copytree(original, quick_path / f"{at}")
        damage(place / name)
        store = open_store(place)
        shown = repair(store, dry_run=True)
        # A page that is gone is made again by whoever reads the log next.
        assert not shown.nothing or name.parts[0] == "pages", (name, damage)
        assert not shown.rebuilt
        done = repair(store, patience_s=0)
        assert [mend.name for mend in done.mends] == [mend.name for mend in shown.mends]
        assert done.incarnation is None
        assert (place / name).read_bytes() == (original / name).read_bytes(), (name, damage)
        assert repair(store, dry_run=True).nothing
        looked = ps.Checkpoints(place, read_only=True)
        assert [(checkpoint.step, checkpoint.damage) for checkpoint in looked.list()] == expected
        assert all(Verifier().verify(checkpoint).ok for checkpoint in looked.list())
        shutil.rmtree(place)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_record_lost_in_both_copies_is_rebuilt_as_well_as_can_be(
    quick_path: Path, damage: Callable[[Path], None]
) -> None:
    """Goal: repair brings back every checkpoint whose data is whole, in its order. Method: each record in turn, in all copies."""
    original = quick_path / "original"
    make(original)
    records = list(Log(open_store(original)).read().records())
    expected = [checkpoint.step for checkpoint in ps.Checkpoints(original, read_only=True).list()]
    kinds = set()
    for number, record in records:
        if damage is lose and number == len(records) - 1:
            # Nothing shows that it was there.
            continue
        place = shutil.copytree(original, quick_path / f"{number}")
        for name in (record_name(number), copy_name(number)):
            damage(place / name)
        store = open_store(place)
        with ps.Checkpoints(place) as ck:
            assert ck.log.read().lost == (number,)
        assert repair(store, dry_run=True).rebuilt
        assert Log(store).read().lost == (number,)
        done = repair(store, patience_s=0)
        kinds.add(type(record).__name__)
        assert [entry.number for entry in done.rebuilt] == [number]
        assert done.incarnation is not None
        assert done.incarnation > 1
        history = Log(store).read()
        assert history.lost == ()
        assert not any(isinstance(entry, Lost) for _, entry in history.records())
        assert [committed.step for committed in history.checkpoints()] == expected, (number, record)
        assert repair(store, dry_run=True).nothing
        assert newest(place) == 5
    assert kinds >= {"Fence", "Commit", "Retire", "Quarantine"}


def test_a_log_that_is_gone_altogether_is_rebuilt_from_manifests(tmp_path: Path) -> None:
    make(tmp_path)
    for top in ("log", "copies/log", "pages"):
        shutil.rmtree(tmp_path / top, ignore_errors=True)
    store = open_store(tmp_path)
    done = repair(store, patience_s=0)
    assert len(done.appended) == 6
    assert [committed.step for committed in Log(store).read().checkpoints()] == [2, 3, 4, 5]
    assert newest(tmp_path) == 5


def test_repair_is_refused_beside_a_living_incarnation_and_fences_a_dead_one(tmp_path: Path) -> None:
    """Goal: nobody is repaired under its feet. Method: a real run that watches; then the same after its end, with a writer that was away."""
    with ps.Checkpoints(tmp_path, watch_s=0.02) as ck:
        ck.save(1, tree(1)).wait()
        ck.save(2, tree(2)).wait()
        for name in (record_name(1), copy_name(1)):
            flip(tmp_path / name)
        store = open_store(tmp_path)
        with pytest.raises(PlaceInUse, match="incarnation 0 is at work"):
            repair(store, patience_s=30)
        assert Log(store).read().lost == (1,)
        assert not list(store.entries("repair"))
        assert ck._watch is not None
        # It does not answer any more, as if it had been stopped.
        ck._watch.stop()
        done = repair(store, patience_s=0.1)
        assert done.incarnation is not None
        assert done.incarnation > 0
        with pytest.raises(Fenced):
            ck.save(3, tree(3)).wait()
    assert newest(tmp_path) == 2


def test_object_stores_are_repaired_too(s3_bucket: str, tmp_path: Path) -> None:
    place = f"{s3_bucket}/{tmp_path.name}"
    make(place)
    store: Store = open_store(place)
    for name in (record_name(3), copy_name(3), copy_name(7)):
        store.replace(name, b"{}")
    store.delete(record_name(5))
    done = repair(store, patience_s=0)
    assert [entry.number for entry in done.rebuilt] == [3]
    assert {mend.name for mend in done.mends} >= {copy_name(7)}
    assert [committed.step for committed in Log(store).read().checkpoints()] == [2, 3, 4, 5]
    assert repair(store, dry_run=True).nothing


def test_the_command_shows_repairs_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "place"
    make(place)
    command = ["checkpoint", "repair", str(place), "--wait-s", "0"]
    assert main([*command, "--dry-run"]) == 0
    assert "needs no repair" in capsys.readouterr().err
    for name in (record_name(3), copy_name(3)):
        flip(place / name)
    assert main([*command, "--dry-run"]) == 1
    captured = capsys.readouterr()
    assert "the checkpoint of step 3" in captured.out
    assert "nothing was changed" in captured.err
    assert main(["checkpoint", "list", str(place)]) == 0
    assert "records of the log cannot be read: 3" in capsys.readouterr().err
    assert main([*command, "--json"]) == 0
    assert '"number":3' in capsys.readouterr().out.replace(" ", "")
    assert main(command) == 0
    assert main(["checkpoint", "verify", str(place), "--all"]) == 0


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_place_without_anything_saved_is_no_whole_place(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / kind
    if kind == "empty":
        place.mkdir()
    elif kind == "file":
        place.write_text("no place")
    assert main(["checkpoint", "repair", str(place), "--dry-run"]) == 1
    assert main(["checkpoint", "repair", str(place), "--wait-s", "0"]) == 1
    assert "needs no repair" not in capsys.readouterr().err


def test_a_place_that_may_only_be_read_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    """Method: processes without the right to write there, even as root."""
    place = tmp_path / "place"
    make(place)
    for name in (record_name(3), copy_name(3)):
        flip(place / name)
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*drop, sys.executable, "-m", "penstock.cli.main", "checkpoint", "repair", str(place)]
    for folder in folders:
        folder.chmod(0o555)
    try:
        ran = [
            subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
            for more in (["--dry-run"], ["--wait-s", "0"])
        ]
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert [process.returncode for process in ran] == [1, 2], ran
    assert "the checkpoint of step 3" in ran[0].stdout
    assert "not allowed to write" in ran[1].stderr
    assert [entry.number for entry in repair(open_store(place), patience_s=0).rebuilt] == [3]
