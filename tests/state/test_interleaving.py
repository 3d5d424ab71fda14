"""Garbage collection against everything that can run beside it, one store operation at a time, in orders that hypothesis picks."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointUnknown, Fenced, ObjectMissing
from penstock.state.log.history import Committed, History
from penstock.state.log.log import Log
from penstock.state.log.pins import pin
from penstock.state.log.prune import prune
from penstock.state.log.records import Record, Retire
from penstock.state.log.references import References
from penstock.state.log.retention import Keep
from penstock.state.manifest import manifest_name
from penstock.store import Store, open_store
from tests.state.savers import begin, check, files_of, must_save, save_for_sure
from tests.state.stepping import STEPS_MAX, Actor, Turn, interleave

#: Long turns, as what goes wrong mostly needs few switches at the right places. One turn in sixteen ends with a kill.
TURNS = st.lists(
    st.builds(Turn, st.integers(0, 59), st.integers(1, 40), st.sampled_from([False] * 15 + [True])),
    max_size=24,
)


def saver(member: object, steps: list[int], saved: list[Committed]) -> Callable[[Store], None]:
    """Saves steps, each naming files of the oldest good checkpoint, which retention is about to take."""

    def work(store: Store) -> None:
        log = Log(store)
        own = member or begin(log)
        for step in steps:
            borrowed = borrow(store, log.read())
            saved.append(save_for_sure(log, own, step, borrowed))  # type: ignore[arg-type]

    return work


def borrow(store: Store, history: History) -> list[str]:
    """Files of the oldest good checkpoint; none if it was retired just now, with its manifest."""
    try:
        return files_of(store, history.good()[0])[-2:]
    except ObjectMissing:
        return []


def pruner(store: Store) -> None:
    log = Log(store)
    for _ in range(2):
        prune(log, Keep(last=1))


class Spectator:
    """Looks after every change whether what exists is whole, and whether a retire took what it must not."""

    def __init__(self, store: Store) -> None:
        self.store, self.log, self.references = store, Log(store), References(store)

    def look(self) -> None:
        before = self.log.known
        history = self.log.read()
        there = {entry.name for entry in self.store.entries()}
        for checkpoint in history.checkpoints():
            assert checkpoint.good
            needed = {manifest_name(checkpoint.commit.manifest), *self.references.of(checkpoint.commit)}
            assert needed <= there, f"step {checkpoint.step} lost {needed - there}"
        self._check_retires(before, history)

    def _check_retires(self, before: History, history: History) -> None:
        records: list[Record] = [record for _, record in before.records()]
        for _, record in history.records(since=before.length):
            if isinstance(record, Retire):
                known = History().after(list(records))
                newest = known.newest_good()
                assert newest is not None
                assert newest.number not in record.commits
                assert not any(known.living[number].pins for number in record.commits)
            records.append(record)


def assert_no_garbage(store: Store, log: Log) -> None:
    """After a prune, data files are those that checkpoints name, and those of the newest incarnation without a commit."""
    history = prune_and_read(log)
    named = {name for checkpoint in history.checkpoints() for name in files_of(store, checkpoint)}
    committed = {(commit.incarnation, commit.step, commit.attempt) for _, commit in history.commits()}
    for entry in store.entries("data"):
        incarnation, _, save = entry.name.split("/")[1], 0, entry.name.split("/")[2]
        step, attempt = save.split("-")
        under_way = (int(incarnation), int(step), int(attempt)) not in committed
        assert entry.name in named or (under_way and int(incarnation) == history.incarnation)
    manifests = {manifest_name(checkpoint.commit.manifest) for checkpoint in history.checkpoints()}
    for entry in store.entries("parts"):
        assert int(entry.name.split("/")[1]) == history.incarnation
    assert manifests <= {entry.name for entry in store.entries("manifests")}


def prune_and_read(log: Log) -> History:
    prune(log, Keep(last=1))
    return log.read()


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=TURNS)
def test_pruners_take_nothing_from_savers_whatever_the_order(turns: list[Turn]) -> None:
    """Goal: S1, S2, S7 while savers, a successor, pruners and a pinner run at once. Method: every order of single store operations,
    kills included; between any two, each checkpoint that exists has all its files."""
    store = open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
    log = Log(store)
    member = begin(log)
    first = must_save(log, member, 1)
    second = must_save(log, member, 2, borrowed=files_of(store, first))
    saved: list[Committed] = []
    pinned: list[int] = []

    def pinner(own: Store) -> None:
        for number in (first.number, second.number):
            try:
                pinned.append(pin(Log(own), number, "file:///other", at=0.0).number)
            except CheckpointUnknown:
                continue

    spectator = Spectator(store)
    actors = [
        Actor("saver", store, saver(member, [3, 4], saved)),
        # A save that begins while another one is under way.
        Actor("overlapping saver", store, saver(member, [6], saved)),
        Actor("successor", store, saver(None, [3, 5], saved)),
        Actor("pruner", store, pruner),
        Actor("other pruner", store, pruner),
        Actor("pinner", store, pinner),
    ]
    killable = {actor.name for actor in actors if actor.name != "successor"}
    interleave(actors, turns, killable=killable, after_change=spectator.look)

    problems = {actor.name: actor.problem for actor in actors if actor.problem is not None}
    fenced = {name for name, problem in problems.items() if isinstance(problem, Fenced)}
    assert fenced == set(problems), problems
    assert fenced <= {"saver", "overlapping saver"}
    history = prune_and_read(log)
    assert {committed.number for committed in saved} <= {number for number, _ in history.commits()}
    assert set(pinned) <= set(history.living)
    for checkpoint in history.checkpoints():
        for name in files_of(store, checkpoint):
            check(store, name)
    assert_no_garbage(store, log)


@pytest.mark.parametrize("begins", ["saver", "pruner"])
def test_a_save_and_a_pruner_with_every_two_switches(begins: str) -> None:
    """Goal: no place is left out for the pair that matters most: a save that borrows what a pruner takes. Method: one of them
    makes i operations, then the other j, then each goes on to its end; for every i and j."""
    gone = 0
    i, lasts = 0, True
    while lasts:
        lasts = False
        for j in range(1, 200):
            outcome = _two_switches(begins, i, j)
            gone += outcome.wrote_again
            lasts |= outcome.first_was_running
            if not outcome.second_was_running:
                break
        i += 1
    assert i > 10
    assert gone > 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """Which of the two had not ended at its switch, and whether the save could not borrow."""

    first_was_running: bool
    second_was_running: bool
    wrote_again: bool


def _two_switches(begins: str, i: int, j: int) -> Outcome:
    store = open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
    log = Log(store)
    member = begin(log)
    old = must_save(log, member, 1)
    must_save(log, member, 2)
    saved: list[Committed] = []
    spectator = Spectator(store)

    def work(own: Store) -> None:
        saved.append(save_for_sure(Log(own), member, 3, ["data/0/1-0/0.safetensors"]))

    actors = [Actor("saver", store, work), Actor("pruner", store, lambda own: prune(Log(own), Keep(last=1)))]
    if begins == "pruner":
        actors.reverse()
    first, second = actors
    run(first, i, spectator)
    first_runs = not first.done
    run(second, j, spectator)
    second_runs = not second.done
    run(first, STEPS_MAX, spectator)
    run(second, STEPS_MAX, spectator)
    assert [first.problem, second.problem] == [None, None]
    assert saved[0].number in log.read().living
    assert old.number not in log.read().living
    return Outcome(first_runs, second_runs, saved[0].commit.attempt > 0)


def run(actor: Actor, operations: int, spectator: Spectator) -> None:
    for _ in range(operations):
        if actor.done:
            return
        if actor.step():
            spectator.look()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=TURNS)
def test_a_pruner_killed_anywhere_is_simply_run_again(turns: list[Turn]) -> None:
    """Goal: nothing is left for ever. Method: kill pruners between operations, then let one finish."""
    store = open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
    log = Log(store)
    for _ in range(2):
        member = begin(log)
        for step in range(3):
            must_save(log, member, step)
    spectator = Spectator(store)
    actors = [Actor(name, store, pruner) for name in ("a", "b", "c")]
    interleave(actors, turns, killable={"a", "b", "c"}, after_change=spectator.look)
    assert [actor.problem for actor in actors] == [None] * 3
    assert_no_garbage(store, log)
    assert sorted(entry.name for entry in store.entries("data")) == ["data/1/2-0/0.safetensors"]
    assert len(list(store.entries("manifests"))) == 1
