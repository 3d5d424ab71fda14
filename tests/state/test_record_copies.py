"""Records are kept twice; one that is bad in both copies costs itself alone, and no number ever becomes free again."""

import itertools
import random
import uuid
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import Fenced, RecordUnknown
from penstock.state.log import record_copies
from penstock.state.log.commit import quarantine
from penstock.state.log.history import record_name
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.prune import prune
from penstock.state.log.record_copies import copy_name, first_numbers, page_name, second_numbers
from penstock.state.log.records import (
    Commit,
    Fence,
    Lost,
    Pin,
    Quarantine,
    Record,
    Retire,
    Unpin,
    encode_line,
)
from penstock.state.log.retention import Keep
from penstock.store import Store, open_store
from tests.state.savers import begin, must_save, save_for_sure
from tests.state.stepping import STEPS_MAX, Actor, Turn, interleave
from tests.state.test_log import EVERY_KIND, fences, fill, replace_object

Damage = Callable[[Store, str], None]


def flip(store: Store, name: str) -> None:
    """One bit in the middle."""
    data = store.get(name)
    middle = len(data) // 2
    store.replace(name, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def lose(store: Store, name: str) -> None:
    """The file is gone."""
    store.delete(name)


def empty(store: Store, name: str) -> None:
    """Nothing is left in it."""
    store.replace(name, b"")


DAMAGES = [flip, lose, empty]


def records(store: Store) -> list[Record | Lost]:
    return [record for _, record in Log(store).read().records()]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of few records, so that a short log has some of each size."""
    monkeypatch.setattr(record_copies, "PAGE_SIZES", (16, 4))


def test_a_file_of_the_log_that_is_lost_or_flipped_costs_nothing(memory: Store, small_pages: None) -> None:
    """Goal: item by item, no single file of the log matters. Method: every file, every damage, read and append."""
    expected = fences(27)
    fill(memory, expected)
    whole = {e.name: memory.get(e.name) for top in ("log", "copies", "pages") for e in memory.entries(top)}
    assert {name.split("/")[0] for name in whole} == {"log", "copies", "pages"}
    for name, damage in itertools.product(whole, DAMAGES):
        copied = open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
        for file, data in whole.items():
            copied.put_if_absent(file, data)
        damage(copied, name)
        assert records(copied) == expected, (name, damage)
        log = fill(copied, [Fence(27, 1, "next", 27.0)])
        assert log.read().lost == ()
        assert records(copied) == [*expected, Fence(27, 1, "next", 27.0)], (name, damage)


@pytest.mark.parametrize("damage", DAMAGES[::2])
@pytest.mark.parametrize("number", range(len(EVERY_KIND)))
def test_a_record_bad_in_both_copies_costs_itself_alone(memory: Store, number: int, damage: Damage) -> None:
    fill(memory, EVERY_KIND)
    for name in (record_name(number), copy_name(number)):
        damage(memory, name)
    read_records = records(memory)
    assert isinstance(read_records[number], Lost)
    assert (
        read_records[:number] + read_records[number + 1 :] == EVERY_KIND[:number] + EVERY_KIND[number + 1 :]
    )
    history = Log(memory).read()
    assert history.lost == (number,)
    steps = {committed.step for committed in history.checkpoints()}
    assert steps == {1: {200, 300}, 2: {300}, 3: {200}, 7: {100, 200, 300}}.get(number, {200, 300})
    # What a later fence of the log says is certain again; after the last one it is not.
    assert bool(history.lost_since_fence) == (number == 8)


def test_a_record_missing_in_both_copies_below_later_ones_is_lost(store: Store) -> None:
    fill(store, EVERY_KIND)
    for name in (record_name(4), copy_name(4)):
        store.delete(name)
    history = Log(store).read()
    assert history.lost == (4,)
    assert history.length == len(EVERY_KIND)
    assert "later records are there" in next(r.reason for _, r in history.records() if isinstance(r, Lost))


@pytest.mark.parametrize("where", ["fence", "commit", "last"])
def test_only_an_incarnation_that_begins_after_a_lost_record_commits(store: Store, where: str) -> None:
    """Goal: a lost record counts as a fence of an unknown, higher incarnation. Method: lose the fence of the newest incarnation, a
    commit, and the last record; the incarnation that is known may not commit, one that begins then may, under a new number."""
    log = Log(store)
    old = begin(log)
    must_save(log, old, 1)
    newer = begin(log)
    kept = must_save(log, newer, 2)
    number = {"fence": 2, "commit": 1, "last": 3}[where]
    for name in (record_name(number), copy_name(number)):
        flip(store, name)
    for member in (old, newer):
        if where == "commit" and member is newer:
            # Its fence came after, so what is lost was none that is higher.
            continue
        with pytest.raises(Fenced):
            must_save(Log(store), member, 3)
    if where == "fence":
        assert [committed.step for committed in Log(store).read().checkpoints()] == [1, 2]
    successor = begin(Log(store))
    assert successor.incarnation is not None
    assert successor.incarnation > 1
    saved = must_save(Log(store), successor, 3)
    history = Log(store).read()
    assert history.newest_good() == saved
    assert history.lost == (number,)
    if where != "last":
        assert kept.number in history.living
    with pytest.raises(Fenced):
        must_save(Log(store), newer, 4)


def test_the_number_of_a_lost_fence_is_not_given_again(memory: Store) -> None:
    """Goal: files of an incarnation whose fence is lost are never mixed with those of another."""
    log = Log(memory)
    begin(log)
    counted = fence(log, Member(0, 1, "launcher", incarnation=7))
    memory.put_if_absent("data/7/1-0/0.safetensors", b"under way")
    for name in (record_name(1), copy_name(1)):
        flip(memory, name)
    assert counted.incarnation == 7
    assert begin(Log(memory)).incarnation == 8


def test_who_read_a_record_before_it_was_lost_agrees_with_its_successors(memory: Store) -> None:
    """Goal: everybody comes to the same history. Method: a reader that knows a record; then it is lost, and a writer that cannot
    read it goes on after it."""
    log = Log(memory)
    member = begin(log)
    must_save(log, member, 1)
    early = Log(memory)
    assert early.read().length == 2
    for name in (record_name(1), copy_name(1)):
        flip(memory, name)
    begin(Log(memory))
    late = Log(memory).read()
    assert early.read().lost == late.lost == (1,)
    assert early.read().checkpoints() == late.checkpoints() == []


def test_a_record_of_a_newer_release_is_never_taken_for_a_lost_one(memory: Store) -> None:
    fill(memory, EVERY_KIND[:1])
    check = record_copies.read_line("", memory.get(record_name(0)), 0).check
    line = encode_line(1, check, "n", {"kind": "merge", "at": 0.0})  # type: ignore[arg-type]
    memory.put_if_absent(record_name(1), line)
    with pytest.raises(RecordUnknown, match="merge"):
        Log(memory).read()


def test_pruners_keep_what_a_lost_record_may_have_named(memory: Store) -> None:
    """Goal: a lost commit can still be rebuilt, and a lost pin still holds. Method: lose a commit, begin anew, save and prune."""
    log = Log(memory)
    member = begin(log)
    must_save(log, member, 1)
    must_save(log, member, 2)
    for name in (record_name(2), copy_name(2)):
        flip(memory, name)
    log = Log(memory)
    member = begin(log)
    for step in (3, 4, 5):
        must_save(log, member, step)
    prune(log, Keep(last=1))
    history = log.read()
    assert [committed.step for committed in history.checkpoints()] == [1, 5]
    names = {entry.name for entry in memory.entries("data")}
    assert "data/0/2-0/0.safetensors" in names
    assert "data/1/3-0/0.safetensors" not in names


@pytest.mark.parametrize("tail", [0, 3])
def test_a_writer_that_dies_between_the_copies_is_made_up_for(store: Store, tail: int) -> None:
    """Goal: the first copy decides, and its record counts. Method: records without a second copy, at the end of the log and before it,
    read by others that were open already; the next one that appends adds what is missing."""
    fill(store, fences(3))
    beside = Log(store)
    beside.read()
    check = record_copies.read_line("", store.get(record_name(2)), 2).check
    store.put_if_absent(record_name(3), encode_line(3, check, "died", Fence(3, 1, "token 3", 3.0)))
    assert records(store) == fences(4)
    for number in range(4, 5 + tail):
        beside.append(lambda known, n=number: Fence(n, 1, f"token {n}", float(n)))  # type: ignore[misc]
    assert second_numbers(store) == first_numbers(store) == set(range(5 + tail))
    assert store.get(copy_name(3)) == store.get(record_name(3))


def test_a_number_whose_first_copy_was_lost_is_not_given_again(memory: Store, small_pages: None) -> None:
    """Goal: a lost file does not free its number, on a page or not. Method: a writer that knows only the beginning of the log meets the
    first copy of its next number gone."""
    for behind, ahead in [(2, 3), (2, 5), (2, 40), (6, 9)]:
        store = open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
        fill(store, fences(behind))
        away = Log(store)
        away.read()
        fill(store, fences(ahead)[behind:])
        store.delete(record_name(behind))
        away._probe = lambda: None  # type: ignore[method-assign]
        away.append(lambda known: Fence(known.next_incarnation(), 1, "away", 0.0))
        assert [r.token for r in records(store) if isinstance(r, Fence)] == [
            *(f"token {n}" for n in range(ahead)),
            "away",
        ]


TURNS = st.lists(
    st.builds(Turn, st.integers(0, 59), st.integers(1, 60), st.sampled_from([False] * 7 + [True])),
    max_size=12,
)


def _zombie_and_successor(store: Store, turns: list[Turn], saves: int) -> None:
    log = Log(store)
    member = begin(log)
    first = must_save(log, member, 1)
    acknowledged: list[int] = [first.number]

    def zombie(own: Store) -> None:
        mine = Log(own)
        mine.read()
        for step in range(100, 100 + saves):
            acknowledged.append(save_for_sure(mine, member, step, []).number)

    def successor(own: Store) -> None:
        mine = Log(own)
        later = begin(mine)
        for step in range(2, 2 + saves):
            acknowledged.append(save_for_sure(mine, later, step, []).number)
            prune(mine, Keep(last=1))

    lines: dict[int, bytes] = {}

    def look() -> None:
        for number in first_numbers(store):
            line = store.get(record_name(number))
            assert lines.setdefault(number, line) == line, f"number {number} was given twice"

    actors = [Actor("zombie", store, zombie), Actor("successor", store, successor)]
    interleave(actors, turns, killable={"zombie"}, after_change=look)
    problems = [actor.problem for actor in actors if actor.problem is not None]
    assert all(isinstance(problem, Fenced) for problem in problems), problems
    assert actors[1].problem is None
    history = Log(store).read()
    assert history.lost == ()
    assert sorted(lines) == list(range(history.length))
    assert set(acknowledged) <= {number for number, _ in history.commits()}
    assert len(set(acknowledged)) == len(acknowledged)
    for number in range(history.length):
        assert not store.put_if_absent(record_name(number), b"a writer that was away")
    incarnations = [commit.incarnation for _, commit in history.commits()]
    assert incarnations == sorted(incarnations)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=TURNS)
def test_a_zombie_stopped_anywhere_fails_on_every_old_number(turns: list[Turn], small_pages: None) -> None:
    """Goal: compaction into pages frees no number. Method: a writer that is stopped between any two store operations, while its successor
    fills and compacts pages; every number keeps its line for good."""
    _zombie_and_successor(open_store(f"memory://{uuid.uuid4().hex}/checkpoints"), turns, saves=8)


@pytest.mark.parametrize("store", ["directory", "s3"], indirect=True)
@pytest.mark.parametrize("stopped_at", [3, 7, 11])
def test_a_zombie_fails_on_every_old_number_in_files_and_on_s3(
    store: Store, stopped_at: int, small_pages: None
) -> None:
    _zombie_and_successor(store, [Turn(0, stopped_at), Turn(1, STEPS_MAX)], saves=5)


def test_any_two_files_of_the_log_may_go_and_readers_lose_one_record_at_most(
    memory: Store, small_pages: None
) -> None:
    """Goal: damage costs what it hits. Method: random pairs of files, flipped, emptied or lost."""
    log = Log(memory)
    member = begin(log)
    for step in range(1, 9):
        must_save(log, member, step)
    quarantine(log, 2, "torn", rank=0, at=0.0)
    whole = {e.name: memory.get(e.name) for top in ("log", "copies", "pages") for e in memory.entries(top)}
    expected = records(memory)
    draw = random.Random(7)
    for _ in range(150):
        copied = open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
        for file, data in whole.items():
            copied.put_if_absent(file, data)
        for name in draw.sample(sorted(whole), 2):
            draw.choice(DAMAGES)(copied, name)
        read_records = records(copied)
        differing = [a for a, b in zip(read_records, expected, strict=False) if a != b]
        assert all(isinstance(record, Lost) for record in differing)
        # The last record can be missing in both copies, and then nothing shows that it was there.
        assert len(differing) + len(expected) - len(read_records) <= 1


def test_rules_that_a_lost_record_explains_are_no_damage(memory: Store) -> None:
    """A lost unpin before a retire, a lost commit that later records name, a lost fence before commits."""
    log = fill(
        memory,
        [
            Fence(0, 1, "a", 0.0),
            Commit(0, 1, 0, "b3:1", 0, 0.0),
            Commit(0, 2, 0, "b3:2", 0, 0.0),
            Pin(1, "x", 0.0),
            Unpin(1, "x", 0.0),
            Quarantine(2, "torn", 0, 0.0),
            Retire((1,), 0.0),
            Fence(1, 1, "b", 0.0),
            Commit(1, 3, 0, "b3:3", 0, 0.0),
        ],
    )
    assert log.read().lost == ()
    for number in (2, 4, 7):
        for name in (record_name(number), copy_name(number)):
            replace_object(memory, name, b"{}")
    history = Log(memory).read()
    assert history.lost == (2, 4, 7)
    assert [committed.step for committed in history.checkpoints()] == [3]
    assert history.incarnation == 1


def test_a_page_has_the_lines_of_its_records(memory: Store, small_pages: None) -> None:
    fill(memory, fences(9))
    lines = [memory.get(record_name(number)) for number in range(9)]
    assert memory.get(page_name(4, 1)).split(b"\n") == lines[4:8]
    assert second_numbers(memory) == {8}
