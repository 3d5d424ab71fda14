"""What a run finds when it looks for its checkpoints: the newest whole one, an error when none is left, and news of its successor."""

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CheckpointRetired, Fenced, NothingLoads, TreeSpoiled
from penstock.state.log.history import record_name
from penstock.state.log.log import Log
from penstock.state.log.record_copies import copy_name
from penstock.state.log.records import Retire
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store, open_store
from tests.state.stepping import STEPS_MAX, Actor

FROZEN = np.arange(300_000, dtype=np.float64)


def tree(step: int) -> dict[str, Any]:
    return {"frozen": FROZEN.copy(), "w": np.full(200_000, float(step))}


def save_three(place: Path) -> list[str]:
    """Three checkpoints that share the file of what is frozen; that file's name."""
    with ps.Checkpoints(place) as ck:
        for step in (1, 2, 3):
            ck.save(step, tree(step)).wait()
        files = [{file.name for file in checkpoint.manifest.files} for checkpoint in ck.list()]
    return sorted(files[0] & files[1] & files[2])


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def test_when_every_checkpoint_is_damaged_resume_says_so_and_the_tree_is_not_saved(tmp_path: Path) -> None:
    """Goal: no training from half-loaded weights. Method: one flipped bit in the file that all checkpoints share."""
    (shared,) = save_three(tmp_path)
    flip(tmp_path / shared)
    into = tree(0)
    with ps.Checkpoints(tmp_path) as ck:
        with pytest.raises(NothingLoads) as caught:
            ck.resume(into)
        assert list(caught.value.reasons) == [f"step {n} (number {n})" for n in (1, 2, 3)]
        assert all("frozen" in reason for reason in caught.value.reasons.values())
        assert "allow_empty=True" in (caught.value.hint or "")
        with pytest.raises(TreeSpoiled, match="filled in part with step 1"):
            ck.save(4, into)
        with pytest.raises(NothingLoads):
            ck.latest()
        assert ck.latest(allow_empty=True) is None
    with ps.Checkpoints(tmp_path) as ck:
        fresh = tree(0)
        assert ck.resume(fresh, allow_empty=True) is None
        ck.save(1, tree(1)).wait()
    with ps.Checkpoints(tmp_path) as ck:
        checkpoint = ck.resume(into)
        assert checkpoint is not None
        assert checkpoint.step == 1
        # Loaded as a whole, so it is a state again.
        ck.save(2, into).wait()


def test_a_tree_that_fell_back_is_whole(tmp_path: Path) -> None:
    """Goal: after a failed load the tree is reloaded. Method: the newest checkpoint alone is damaged."""
    save_three(tmp_path)
    with ps.Checkpoints(tmp_path, read_only=True) as ck:
        own = [file.name for file in ck.at(3).manifest.files if "/3-0/" in file.name]
    flip(tmp_path / own[0], -1)
    into = tree(0)
    with ps.Checkpoints(tmp_path) as ck:
        checkpoint = ck.resume(into)
        assert checkpoint is not None
        assert checkpoint.step == 2
        assert np.array_equal(into["w"], tree(2)["w"])
        ck.save(4, into).wait()


def test_a_failed_load_of_one_part_spoils_until_that_part_is_loaded(tmp_path: Path) -> None:
    save_three(tmp_path)
    with ps.Checkpoints(tmp_path) as ck:
        bad, good = ck.at(3), ck.at(2)
        own = [file.name for file in bad.manifest.files if "/3-0/" in file.name]
        flip(tmp_path / own[0], -1)
        into = tree(0)
        with pytest.raises(ps.PenstockError):
            ck.load(bad, into, only="w")
        ck.load(good, into, only="frozen")
        with pytest.raises(TreeSpoiled):
            ck.save(5, into)
        ck.load(good, into, only="w")
        ck.save(5, into).wait()


@pytest.mark.parametrize("what", ["log", "records"])
def test_a_place_whose_log_is_lost_is_not_begun_from_nothing(tmp_path: Path, what: str) -> None:
    save_three(tmp_path)
    if what == "log":
        for top in ("log", "copies", "pages"):
            shutil.rmtree(tmp_path / top, ignore_errors=True)
    else:
        for number in (1, 2, 3):
            for name in (record_name(number), copy_name(number)):
                flip(tmp_path / name)
    with ps.Checkpoints(tmp_path) as ck, pytest.raises(NothingLoads, match="is lost"):
        ck.resume(tree(0))


def test_a_save_that_died_before_the_first_commit_is_no_loss(tmp_path: Path) -> None:
    """Goal: a run killed in its first save begins from nothing. Method: a manifest without a commit, under a fence."""
    with ps.Checkpoints(tmp_path) as ck:
        ck.begin(tree(0))
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "00.json").write_text("{}")
    with ps.Checkpoints(tmp_path) as ck:
        assert ck.resume(tree(0)) is None


def test_a_fenced_job_hears_of_it_without_saving(tmp_path: Path) -> None:
    with ps.Checkpoints(tmp_path, watch_s=0.02) as ck:
        ck.begin(tree(0))
        ck.check()
        with ps.Checkpoints(tmp_path) as successor:
            successor.begin(tree(0))
        wait = Wait(30, Clock())
        assert ck._watch is not None
        while ck._watch.fenced is None:
            assert wait.again()
        with pytest.raises(Fenced, match="incarnation 0 was replaced by 1"):
            ck.check()
        with pytest.raises(Fenced):
            ck.save(1, tree(1))


def test_a_failed_save_is_told_by_the_next_check_once(tmp_path: Path) -> None:
    with ps.Checkpoints(tmp_path) as ck:
        ck.save(1, tree(1)).wait()
        with ps.Checkpoints(tmp_path) as successor:
            successor.save(2, tree(2)).wait()
        ck.check()
        assert ck.save(3, tree(3)).ended(60)
        with pytest.raises(Fenced):
            ck.check()
        ck.check()


def test_a_reader_beside_a_pruner_looks_again(tmp_path: Path) -> None:
    """Goal: a checkpoint that was merely retired is neither damage nor nothing. Method: a reader stopped before every one of its store
    operations, while the run saves and prunes; it always finds one that exists."""
    steps = iter(range(1, 10_000))
    with ps.Checkpoints(tmp_path, keep=ps.Keep(last=1)) as writer:
        writer.save(next(steps), tree(0)).wait()

        def save() -> None:
            step = next(steps)
            writer.save(step, {"w": np.full(10, float(step)), "frozen": FROZEN[:5]}).wait()
            writer._saver.submit(lambda: None).result()

        def look(store: Store) -> None:
            reader = ps.Checkpoints(tmp_path, read_only=True)
            reader.store, reader.log = store, Log(store)
            answers.append(reader.latest())

        for operations in range(1, 14):
            answers: list[Any] = []
            reader = Actor("reader", open_store(tmp_path), look)
            for _ in range(operations):
                if not reader.done:
                    reader.step()
            save()
            for _ in range(STEPS_MAX):
                if reader.done:
                    break
                reader.step()
            assert reader.problem is None, reader.problem
            assert answers[0] is not None
        old = ps.Checkpoints(tmp_path, read_only=True)
        seen = old.latest()
        assert seen is not None
        save()
        with pytest.raises(CheckpointRetired, match="was retired meanwhile"):
            old.load(seen, {"w": np.zeros(10), "frozen": np.zeros(5)})
        assert [checkpoint.damage for checkpoint in old.list()] == [""]


def test_resuming_beside_a_pruner_moves_on_without_quarantine(tmp_path: Path) -> None:
    """Goal: a rank that finds its choice retired takes the next one. Method: the choice is retired before it is loaded."""
    with ps.Checkpoints(tmp_path, token="writer") as ck:
        for step in (1, 2):
            ck.save(step, tree(step)).wait()
        with ps.Checkpoints(tmp_path, token="reader") as late:
            gone = threading.Event()

            def fits(candidate: ps.Checkpoint) -> bool:
                if not gone.is_set() and candidate.step == 1:
                    gone.set()
                    # After the choice was made, and before it is loaded.
                    Log(open_store(tmp_path)).append(lambda known: Retire((1,), 0.0))
                    return True
                return candidate.step == 1 or gone.is_set()

            checkpoint = late.resume(tree(0), fits=fits)
            assert checkpoint is not None
            assert checkpoint.step == 2
            assert all(not other.damage for other in late.list())
