"""Which checkpoints are kept, what is deleted, and that neither ever takes what somebody needs."""

import random
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CheckpointUnknown, UsageError
from penstock.state.log.commit import Gone, quarantine
from penstock.state.log.history import Committed, History
from penstock.state.log.log import Log
from penstock.state.log.pins import pin, unpin, unpin_all
from penstock.state.log.prune import prune
from penstock.state.log.records import Commit, Fence, Pin, Quarantine, Record, Retire
from penstock.state.log.retention import Best, Keep, to_retire
from penstock.state.manifest import manifest_name
from penstock.store import Store
from tests.state.processes import end, ready, start
from tests.state.savers import begin, check, files_of, must_save, save


def history_of(steps: list[int], *more: Record, metrics: dict[int, float] | None = None) -> History:
    """Commits of these steps, numbered from 1, and further records."""
    records: list[Record] = [Fence(0, 1, "a", 0.0)]
    for attempt, step in enumerate(steps):
        loss = {"loss": metrics[step]} if metrics and step in metrics else {}
        records.append(Commit(0, step, attempt, f"b3:{attempt}", 0, 0.0, loss))
    return History().after([*records, *more])


def kept(history: History, keep: Keep) -> list[int]:
    """Steps that stay."""
    gone = to_retire(history, keep)
    return [committed.step for committed in history.checkpoints() if committed.number not in gone]


TENS = list(range(0, 100, 10))


@pytest.mark.parametrize(
    ("keep", "steps"),
    [
        (Keep(), [70, 80, 90]),
        (Keep(last=1), [90]),
        (Keep(last=100), TENS),
        (Keep(last=1, every=40), [0, 40, 80, 90]),
        (Keep(last=1, every=25), [0, 30, 50, 80, 90]),
        (Keep(last=1, at=(20, 55)), [20, 90]),
        (Keep(last=1, best=Best("loss")), [30, 90]),
        (Keep(last=1, best=Best("loss", count=2, highest=True)), [10, 50, 90]),
        (Keep(last=1, best=Best("accuracy")), [90]),
        (Keep(last=2, every=50, at=(10,), best=Best("loss")), [0, 10, 30, 50, 80, 90]),
    ],
)
def test_a_checkpoint_stays_if_any_wish_names_it(keep: Keep, steps: list[int]) -> None:
    history = history_of(TENS, metrics={10: 5.0, 30: 1.0, 40: 2.0, 50: 4.0})
    assert kept(history, keep) == steps


def test_of_two_saves_of_a_step_the_later_one_counts() -> None:
    history = history_of([100, 200, 300, 200, 250])
    gone = to_retire(history, Keep(last=1, every=200, at=(200,)))
    assert [committed.number for committed in history.checkpoints() if committed.number not in gone] == [
        1,
        4,
        5,
    ]


def test_damaged_ones_count_for_nothing_and_stay_a_while() -> None:
    damaged = [Quarantine(number, "torn", 0, 0.0) for number in (2, 9, 10)]
    history = history_of(TENS, *damaged)
    assert kept(history, Keep(last=1)) == [70, 80, 90]
    assert kept(history, Keep(last=3, every=10)) == [0, 20, 30, 40, 50, 60, 70, 80, 90]


def test_nothing_is_retired_while_no_checkpoint_is_good() -> None:
    history = history_of([1, 2, 3], *(Quarantine(number, "torn", 0, 0.0) for number in (1, 2, 3)))
    assert to_retire(history, Keep(last=1)) == ()
    assert to_retire(History(), Keep(last=1)) == ()


def test_a_pinned_one_stays() -> None:
    history = history_of(TENS, Pin(3, "file:///other", 0.0), Pin(4, "x", 0.0), Quarantine(4, "torn", 0, 0.0))
    assert kept(history, Keep(last=1)) == [20, 30, 90]


@given(
    steps=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    damaged=st.sets(st.integers(1, 30)),
    pinned=st.sets(st.integers(1, 30)),
    keep=st.builds(
        Keep,
        last=st.integers(1, 5),
        every=st.none() | st.integers(1, 100),
        at=st.lists(st.integers(0, 300), max_size=3).map(tuple),
        best=st.none() | st.builds(Best, st.just("loss"), st.integers(1, 3), st.booleans()),
    ),
)
def test_no_wish_ever_retires_the_newest_good_one(
    steps: list[int], damaged: set[int], pinned: set[int], keep: Keep
) -> None:
    """Goal: S7. Method: any commits, damage, pins and wishes; and retiring twice takes nothing more."""
    more: list[Record] = [Quarantine(number, "torn", 0, 0.0) for number in damaged if number <= len(steps)]
    more += [Pin(number, "x", 0.0) for number in pinned if number <= len(steps)]
    history = history_of(steps, *more, metrics={step: float(step % 7) for step in steps})
    gone = to_retire(history, keep)
    newest = history.newest_good()
    assert newest is None or newest.number not in gone
    assert not any(history.living[number].pins for number in gone)
    left = [committed for committed in history.good() if committed.number not in gone]
    assert len(left) >= min(keep.last, len(history.good()))
    if gone:
        assert to_retire(history.supposing(Retire(gone, 0.0)), keep) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Keep(last=0),
        lambda: Keep(every=0),
        lambda: Keep(at=(-1,)),
        lambda: Best(""),
        lambda: Best("loss", count=0),
    ],
)
def test_wishes_that_make_no_sense_are_refused(wrong: "type[Keep]") -> None:
    with pytest.raises(UsageError):
        wrong()


def names(store: Store, *tops: str) -> list[str]:
    return [name for top in tops for name in sorted(entry.name for entry in store.entries(top))]


def test_prune_retires_and_deletes_what_no_checkpoint_names(store: Store) -> None:
    """Goal: only what nobody names goes. Method: three checkpoints that share a file, one save under way, one incarnation that
    ended in the middle of a save."""
    log = Log(store)
    old = begin(log)
    first = must_save(log, old, 1)
    store.put_if_absent("data/0/2-0/0.safetensors", b"killed here")
    store.put_if_absent("resume/0/0.json", b"{}")
    member = begin(log)
    shared = files_of(store, first)
    must_save(log, member, 3, borrowed=shared)
    must_save(log, member, 4, borrowed=shared)
    store.put_if_absent("data/1/5-0/0.safetensors", b"under way")
    store.put_if_absent("parts/1/5-0/0.json", b"{}")
    store.put_if_absent("resume/1/0.json", b"{}")
    store.put_if_absent("data/notes.txt", b"somebody's own")

    dry = prune(log, Keep(last=1), dry_run=True)
    assert len(log.read().living) == 3
    done = prune(log, Keep(last=1))

    assert done == dry
    assert done.retired == (1, 3)
    assert done.damaged == {}
    assert names(store, "data", "parts", "resume") == [
        "data/0/1-0/0.safetensors",
        "data/1/4-0/0.safetensors",
        "data/1/5-0/0.safetensors",
        "data/notes.txt",
        "parts/1/5-0/0.json",
        "resume/1/0.json",
    ]
    assert len(names(store, "manifests")) == 1
    assert {"data/0/2-0/0.safetensors", "data/1/3-0/0.safetensors", "resume/0/0.json"} < set(done.files)
    assert done.bytes > 0
    again = prune(log, Keep(last=1))
    assert (again.retired, again.files, again.bytes) == ((), (), 0)


def test_prune_of_an_empty_place_does_nothing(store: Store) -> None:
    store.put_if_absent("data/0/1-0/0.safetensors", b"nobody knows")
    assert prune(Log(store), Keep()).files == ()
    assert names(store, "data") == ["data/0/1-0/0.safetensors"]


def test_prune_leaves_no_empty_folders_of_what_it_deleted(local: Store, tmp_path: Path) -> None:
    log = Log(local)
    begin(log)
    for _ in range(2):
        member = begin(log)
        for step in range(3):
            must_save(log, member, step)
    prune(log, Keep(last=1))
    assert [path.name for path in (tmp_path / "checkpoints/data").iterdir()] == ["2"]
    assert [path.name for path in (tmp_path / "checkpoints/data/2").iterdir()] == ["2-0"]


@pytest.mark.parametrize("damage", ["manifest missing", "manifest damaged", "file missing", "file too short"])
def test_prune_looks_before_it_retires(store: Store, damage: str) -> None:
    """Goal: S7, a checkpoint that is not whole is not what is left. Method: the newest one is damaged in a way that needs no
    reading of its tensors to see."""
    log = Log(store)
    member = begin(log)
    must_save(log, member, 1)
    must_save(log, member, 2)
    newest = must_save(log, member, 3)
    target = manifest_name(newest.commit.manifest) if "manifest" in damage else files_of(store, newest)[0]
    data = store.get(target)
    store.delete(target)
    if "missing" not in damage:
        store.put_if_absent(target, data[: len(data) // 2])

    assert prune(log, Keep(last=1), dry_run=True).damaged.keys() == {3}
    assert log.read().quarantined() == []
    done = prune(log, Keep(last=1))

    assert done.retired == (1,)
    assert done.damaged.keys() == {3}
    assert [committed.step for committed in log.read().good()] == [2]
    # What is left of the damaged one stays for looking at.
    assert ("data/0/3-0/0.safetensors" in names(store, "data")) == (damage != "file missing")
    check(store, "data/0/2-0/0.safetensors")
    assert prune(log, Keep(last=1)).files == ()


def test_a_borrowed_file_whose_checkpoints_are_gone_is_reported(store: Store) -> None:
    log = Log(store)
    member = begin(log)
    old = files_of(store, must_save(log, member, 1))
    must_save(log, member, 2)
    prune(log, Keep(last=1))
    assert save(log, member, 3, borrowed=old) == Gone(frozenset(old))
    assert log.read().length == 4
    elsewhere = ["s3://other/run/data/0/1-0/0.safetensors"]
    assert isinstance(save(log, member, 3, attempt=1, borrowed=elsewhere), Committed)


def test_a_file_of_a_damaged_checkpoint_is_not_borrowed(memory: Store) -> None:
    log = Log(memory)
    member = begin(log)
    parent = must_save(log, member, 1)
    assert quarantine(log, parent.number, "a bit flipped", rank=-1, at=0.0)
    assert not quarantine(log, parent.number, "again", rank=-1, at=0.0)
    assert save(log, member, 2, borrowed=files_of(memory, parent)) == Gone(
        frozenset(files_of(memory, parent))
    )


def test_a_commit_that_is_asked_for_again_is_the_same(store: Store) -> None:
    """Goal: a lost answer does no harm, even when the checkpoint was retired since and its files are gone."""
    log = Log(store)
    member = begin(log)
    first = must_save(log, member, 1)
    assert must_save(Log(store), member, 1) == first
    must_save(log, member, 2)
    prune(log, Keep(last=1))
    assert must_save(Log(store), member, 1) == first
    assert [committed.step for committed in log.read().checkpoints()] == [2]


def test_metrics_that_are_no_numbers_are_left_out(memory: Store) -> None:
    log = Log(memory)
    member = begin(log)
    must_save(log, member, 1, metrics={"loss": float("nan"), "norm": 2.0, "scale": float("inf")})
    assert Log(memory).read().good()[0].commit.metrics == {"norm": 2.0}


def test_a_pin_keeps_a_checkpoint_until_it_is_taken_away(store: Store) -> None:
    log = Log(store)
    member = begin(log)
    base = must_save(log, member, 1)
    must_save(log, member, 2)
    for by in ("s3://a", "s3://b", "s3://a"):
        assert pin(Log(store), base.number, by, at=0.0).step == 1
    assert prune(log, Keep(last=1)).retired == ()
    check(store, files_of(store, base)[0])
    assert unpin(log, base.number, "s3://a", at=0.0)
    assert not unpin(log, base.number, "s3://a", at=0.0)
    assert prune(log, Keep(last=1)).retired == ()
    assert unpin_all(log, "s3://b", at=0.0) == 1
    assert prune(log, Keep(last=1)).retired == (1,)
    with pytest.raises(CheckpointUnknown, match="number 1"):
        pin(Log(store), base.number, "s3://a", at=0.0)
    assert not unpin(log, base.number, "s3://a", at=0.0)
    with pytest.raises(UsageError):
        pin(log, 2, "", at=0.0)


def test_processes_that_save_and_prune_at_once_lose_nothing(local: Store) -> None:
    """Goal: the same with real processes and real kills. Method: one incarnation after another saves, borrowing from checkpoints that
    pruners are about to retire; pruners are killed and started again; then every file of every checkpoint is read."""
    draw = random.Random(5)
    killed = 0
    for first in (0, 12):
        saver = start("save", local, first, first + 12)
        pruners = [start("prune", local, 100_000) for _ in range(2)]
        ready(saver, *pruners)
        timers = [threading.Timer(draw.uniform(0.2, 0.6), pruner.kill) for pruner in pruners]
        for timer in timers:
            timer.start()
        assert end(saver) == [{"saved": 12}]
        for timer, pruner in zip(timers, pruners, strict=True):
            timer.cancel()
            pruner.kill()
            pruner.communicate(timeout=60)
            killed += pruner.returncode == -signal.SIGKILL
    assert killed == 4
    log = Log(local)
    assert [commit.step for _, commit in log.read().commits()] == list(range(24))
    prune(log, Keep(last=2))
    history = log.read()
    assert [committed.step for committed in history.checkpoints()] == [22, 23]
    needed = {name for committed in history.checkpoints() for name in files_of(local, committed)}
    for name in needed:
        check(local, name)
    assert set(names(local, "data")) == needed
