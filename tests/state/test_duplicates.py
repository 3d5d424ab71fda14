"""Pieces that many checkpoints share: read again in the background, written twice when asked for, and loads find the second copy."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import penstock as ps
from penstock.errors import NothingLoads, UsageError
from penstock.state.inspect.verify import Verifier
from penstock.state.manifest import DataFile
from tests.state.test_lookup import flip

FROZEN = {"a": np.arange(200_000.0), "b": np.arange(100_000, dtype=np.int32)}


def tree(step: int) -> dict[str, Any]:
    return {
        "frozen": {name: array.copy() for name, array in FROZEN.items()},
        "w": np.full(150_000, step * 1.0),
    }


def save(place: Path, steps: range, **keep: Any) -> None:
    with ps.Checkpoints(place, keep=ps.Keep(last=3, **keep)) as ck:
        if steps.start > 1:
            assert ck.resume(tree(0)) is not None
        for step in steps:
            ck.save(step, tree(step)).wait()


def shared_file(place: Path) -> tuple[Path, list[Path]]:
    """The file that the newest checkpoint refers to, and its second copies."""
    checkpoint = ps.Checkpoints(place, read_only=True).latest()
    assert checkpoint is not None
    piece = checkpoint.manifest.tensors["frozen/a"].pieces[0]
    file = checkpoint.manifest.files[piece.file]
    return place / file.name, sorted({place / duplicate.name for duplicate in file.duplicates})


def resumed(place: Path) -> int:
    into = tree(0)
    with ps.Checkpoints(place) as ck:
        checkpoint = ck.resume(into)
        assert checkpoint is not None
    expected = tree(checkpoint.step)
    for name in FROZEN:
        assert np.array_equal(into["frozen"][name], expected["frozen"][name])
    assert np.array_equal(into["w"], expected["w"])
    return checkpoint.step


@pytest.mark.parametrize("damage", ["flip a", "flip both", "cut", "lose"])
def test_a_load_falls_back_to_the_second_copy(tmp_path: Path, damage: str, caplog: Any) -> None:
    """Goal: with copies=2 no single damage to a shared file costs a checkpoint. Method: damage the file, resume, save on, prune, resume."""
    save(tmp_path, range(1, 5), copies=2)
    first, duplicates = shared_file(tmp_path)
    assert len(duplicates) == 1
    assert duplicates[0].exists()
    with ps.Checkpoints(tmp_path, read_only=True) as ck:
        manifest = ck.at(4).manifest
        starts = {name: manifest.tensors[f"frozen/{name}"].pieces[0].start for name in FROZEN}
    if damage.startswith("flip"):
        for name in ("a", "b") if damage == "flip both" else ("a",):
            flip(first, starts[name] + 1000)
    elif damage == "cut":
        first.write_bytes(first.read_bytes()[:5000])
    else:
        first.unlink()
    with caplog.at_level(logging.WARNING):
        assert resumed(tmp_path) == 4
    assert "second copy" in caplog.text
    save(tmp_path, range(5, 9), copies=2)
    assert resumed(tmp_path) == 8


def test_a_second_copy_that_is_gone_or_damaged_costs_nothing(tmp_path: Path) -> None:
    for at, damage in enumerate([Path.unlink, flip, lambda path: path.write_bytes(b"")]):
        place = tmp_path / str(at)
        save(place, range(1, 5), copies=2)
        _, (duplicate,) = shared_file(place)
        damage(duplicate)
        assert resumed(place) == 4
        with ps.Checkpoints(place) as ck:
            ck.prune(ps.Keep(last=1))
            assert [(checkpoint.step, checkpoint.damage) for checkpoint in ck.list()] == [(4, "")]


def test_verify_reads_both_copies_and_says_whether_it_loads(tmp_path: Path) -> None:
    save(tmp_path, range(1, 5), copies=2)
    first, (second,) = shared_file(tmp_path)
    checkpoint = ps.Checkpoints(tmp_path, read_only=True).latest()
    assert checkpoint is not None
    whole = Verifier().verify(checkpoint)
    assert (whole.ok, whole.loads) == (True, True)
    assert whole.bytes_read > whole.bytes
    flip(second, -1)
    damaged = Verifier().verify(checkpoint)
    assert (damaged.ok, damaged.loads) == (False, True)
    assert second.name in damaged.reason
    flip(first, checkpoint.manifest.tensors["frozen/b"].pieces[0].start)
    assert not Verifier().verify(checkpoint).loads


def test_one_copy_is_the_default_and_manifests_stay_as_they_were(tmp_path: Path) -> None:
    save(tmp_path, range(1, 4))
    _, duplicates = shared_file(tmp_path)
    assert duplicates == []
    assert not list(tmp_path.rglob("*-copy.safetensors"))
    assert msgspec.json.encode(DataFile("data/x", 3)) == b'{"name":"data/x","bytes":3}'
    with pytest.raises(UsageError, match="copies must be 1 or 2"):
        ps.Keep(copies=3)


def test_second_copies_of_retired_checkpoints_are_deleted(tmp_path: Path) -> None:
    save(tmp_path, range(1, 4), copies=2)
    with ps.Checkpoints(tmp_path, keep=ps.Keep(last=1, copies=2)) as ck:
        for step in range(4, 7):
            # What was frozen moves now, so nothing refers to the old files any more.
            moved = {name: array + step for name, array in FROZEN.items()}
            ck.save(step, {"frozen": moved, "w": np.full(10, step)}).wait()
    assert not list(tmp_path.rglob("*-copy.safetensors"))


def test_damage_in_a_shared_piece_is_found_while_the_run_goes_on_and_written_again(tmp_path: Path) -> None:
    """Goal: nobody finds out on the day of the resume. Method: flip a bit in the shared file between two saves of a running process; the
    patrol quarantines what is damaged, the next save is whole."""
    with ps.Checkpoints(tmp_path, keep=ps.Keep(last=3)) as ck:
        for step in (1, 2):
            ck.save(step, tree(step)).wait()
        first, _ = shared_file(tmp_path)
        with ps.Checkpoints(tmp_path, read_only=True) as looking:
            start = looking.at(2).manifest.tensors["frozen/a"].pieces[0].start
        flip(first, start + 5000)
        ck.save(3, tree(3)).wait()
        ck._saver.submit(lambda: None).result()
        assert ck._patrol is not None
        ck._patrol.wait()
        assert [checkpoint.step for checkpoint in ck.list() if checkpoint.damage] == [1, 2, 3]
        ck.save(4, tree(4)).wait()
        ck._saver.submit(lambda: None).result()
        ck._patrol.wait()
        assert [checkpoint.step for checkpoint in ck.list() if not checkpoint.damage] == [4]
    assert resumed(tmp_path) == 4


def test_without_a_second_copy_the_same_damage_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, range(1, 5))
    first, _ = shared_file(tmp_path)
    first.unlink()
    with ps.Checkpoints(tmp_path) as ck, pytest.raises(NothingLoads):
        ck.resume(tree(0))
