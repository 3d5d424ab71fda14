"""The log of a run: one number for one record, whoever writes at the same time, and nothing wrong goes unnoticed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CheckpointDamaged, ManifestNewer, NumbersContended
from penstock.state.log.history import History, record_name
from penstock.state.log.log import ATTEMPTS_MAX, Log
from penstock.state.log.record_copies import PAGE_SIZES, copy_name, page_name
from penstock.state.log.records import (
    Commit,
    Fence,
    Pin,
    Quarantine,
    Record,
    Retire,
    Unpin,
    decode_line,
    encode_line,
    read_line,
)
from penstock.store import Entry, Store
from tests.state.processes import end, ready, start

EVERY_KIND: list[Record] = [
    Fence(0, 4, "token", 1.5),
    Commit(0, 100, 0, "b3:00", 12, 2.0),
    Commit(0, 200, 1, "b3:01", 13, 3.0, {"loss": 0.25}),
    Commit(0, 300, 0, "b3:02", 14, 4.0),
    Pin(1, "s3://other/run", 4.5),
    Unpin(1, "s3://other/run", 4.75),
    Quarantine(3, "a bit flipped", 2, 5.0),
    Retire((1,), 6.0),
    Fence(3, 2, "other", 7.0),
]


class Watched:
    """A real store that counts what is asked of it, and can lose the answer to a put that it made."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url
        self.asked: Counter[str] = Counter()
        self.lose_answers = 0

    def get(self, name: str) -> bytes:
        self.asked["get"] += 1
        return self.store.get(name)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        self.asked["list"] += 1
        return self.store.entries(prefix)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.asked["put"] += 1
        is_new = self.store.put_if_absent(name, data)
        if self.lose_answers:
            self.lose_answers -= 1
            return self.store.put_if_absent(name, data)
        return is_new

    def delete(self, name: str) -> None:
        self.asked["delete"] += 1
        self.store.delete(name)


def watch(store: Store) -> tuple[Watched, Log]:
    watched = Watched(store)
    return watched, Log(watched)  # type: ignore[arg-type]


def fill(store: Store, records: list[Record]) -> Log:
    log = Log(store)
    for record in records:
        log.append(lambda _, record=record: record)  # type: ignore[misc]
    return log


def fences(count: int) -> list[Record]:
    return [Fence(number, 1, f"token {number}", float(number)) for number in range(count)]


def replace_object(store: Store, name: str, data: bytes) -> None:
    store.delete(name)
    assert store.put_if_absent(name, data)


def test_records_come_back_in_order_and_as_they_were(store: Store) -> None:
    log = fill(store, EVERY_KIND)
    assert [record for _, record in log.read().records()] == EVERY_KIND
    assert [record for _, record in Log(store).read().records()] == EVERY_KIND
    assert [number for number, _ in Log(store).read().records(since=7)] == [7, 8]


def test_a_reader_sees_what_others_appended_since(store: Store) -> None:
    writer, reader = Log(store), Log(store)
    assert reader.read().length == 0
    for record in EVERY_KIND:
        before = reader.read()
        writer.append(lambda _, record=record: record)  # type: ignore[misc]
        assert reader.read().length == before.length + 1
        assert before.length == len(list(before.records()))


def test_a_history_means_what_its_records_say(memory: Store) -> None:
    history = fill(memory, EVERY_KIND).read()
    assert (history.incarnation, history.next_incarnation()) == (3, 4)
    assert [committed.step for committed in history.checkpoints()] == [200, 300]
    assert [committed.step for committed in history.good()] == [200]
    assert [(committed.step, committed.damage) for committed in history.quarantined()] == [
        (300, "a bit flipped")
    ]
    assert {number: commit.step for number, commit in history.retired().items()} == {1: 100}
    newest = history.newest_good()
    assert newest is not None
    assert (newest.number, newest.step, newest.commit.metrics) == (2, 200, {"loss": 0.25})
    assert history.at_step(300) is None
    assert [number for number, _ in history.fences()] == [0, 8]


def test_the_newest_is_the_last_in_the_log_not_the_highest_step() -> None:
    history = History().after([Fence(0, 1, "a", 0.0), Commit(0, 200, 0, "b3:0", 0, 0.0)])
    history = history.after([Fence(1, 1, "b", 0.0), Commit(1, 150, 0, "b3:1", 0, 0.0)])
    newest = history.newest_good()
    assert newest is not None
    assert newest.step == 150


def test_who_was_overtaken_decides_again_with_everything_known(store: Store) -> None:
    slow, fast = Log(store), Log(store)
    seen = []

    def decide(history: History) -> Record | None:
        seen.append(history.length)
        if history.length < 2:
            fast.append(lambda known: Fence(known.next_incarnation(), 1, "fast", 0.0))
        return Fence(history.next_incarnation(), 1, "slow", 0.0)

    appended = slow.append(decide)
    assert appended is not None
    assert (seen, appended.number) == ([0, 1, 2], 2)
    assert [fence.token for _, fence in fast.read().fences()] == ["fast", "fast", "slow"]


def test_deciding_nothing_and_refusing_leave_the_log_alone(memory: Store) -> None:
    log = fill(memory, EVERY_KIND)

    def refuse(_: History) -> Record:
        raise ManifestNewer(name="a", found=2, known=1)

    assert log.append(lambda _: None) is None
    with pytest.raises(ManifestNewer):
        log.append(refuse)
    assert Log(memory).read().length == len(EVERY_KIND)


def test_a_writer_recognises_its_record_when_the_answer_was_lost(memory: Store) -> None:
    """Goal: a retried put does not make a record twice. Method: a store that repeats a put whose answer it lost."""
    watched, log = watch(memory)
    watched.lose_answers = 1
    appended = log.append(lambda history: Fence(history.next_incarnation(), 1, "me", 0.0))
    assert appended is not None
    assert [fence.token for _, fence in Log(memory).read().fences()] == ["me"]


def test_endless_contention_is_an_error(memory: Store) -> None:
    slow, fast = Log(memory), Log(memory)

    def decide(history: History) -> Record:
        fast.append(lambda known: Fence(known.next_incarnation(), 1, "fast", 0.0))
        return Fence(history.next_incarnation(), 1, "slow", 0.0)

    with pytest.raises(NumbersContended, match=f"after {ATTEMPTS_MAX} attempts"):
        slow.append(decide)


# Memory belongs to one process.
@pytest.mark.parametrize("store", ["directory", "s3"], indirect=True)
def test_processes_that_append_at_once_lose_and_repeat_nothing(store: Store) -> None:
    fill(store, [Fence(0, 1, "all", 0.0)])
    processes = [start("append", store, name, 10) for name in range(3)]
    ready(*processes)
    end(*processes)
    commits = [commit for _, commit in Log(store).read().commits()]
    for name in range(3):
        assert [commit.step for commit in commits if commit.attempt == name] == list(range(10))


def test_a_changed_byte_anywhere_in_a_copy_is_noticed_and_costs_nothing(memory: Store) -> None:
    fill(memory, EVERY_KIND)
    name = record_name(2)
    line = memory.get(name)
    for at in range(len(line)):
        for bit in (0x01, 0x04, 0x20):
            damaged = line[:at] + bytes([line[at] ^ bit]) + line[at + 1 :]
            replace_object(memory, name, damaged)
            with pytest.raises(CheckpointDamaged, match=r"00000002"):
                read_line(name, damaged, 2)
            assert [record for _, record in Log(memory).read().records()] == EVERY_KIND


@pytest.mark.parametrize("length", [0, 1, 40])
def test_a_torn_record_is_noticed(memory: Store, length: int) -> None:
    fill(memory, EVERY_KIND)
    for name in (record_name(8), copy_name(8)):
        replace_object(memory, name, memory.get(name)[:length])
    history = Log(memory).read()
    assert (history.lost, history.incarnation) == ((8,), 0)


def test_a_place_of_an_earlier_release_is_read_and_gets_second_copies(store: Store) -> None:
    """Goal: records that were kept once stay usable. Method: take the copies away, read, damage one record, append."""
    fill(store, EVERY_KIND)
    for number in range(len(EVERY_KIND)):
        store.delete(copy_name(number))
    assert [record for _, record in Log(store).read().records()] == EVERY_KIND
    fill(store, [Fence(4, 1, "next", 0.0)])
    for number in range(len(EVERY_KIND) + 1):
        assert store.get(copy_name(number)) == store.get(record_name(number))
    store.delete(record_name(4))
    assert Log(store).read().length == len(EVERY_KIND) + 1


def test_what_a_newer_release_wrote_is_not_ignored(memory: Store) -> None:
    fill(memory, EVERY_KIND[:1])
    line = msgspec.json.decode(memory.get(record_name(0)), type=dict[str, object])
    memory.put_if_absent(record_name(1), msgspec.json.encode({**line, "form": 2, "number": 1}))
    with pytest.raises(ManifestNewer, match="format 2"):
        Log(memory).read()


@pytest.mark.parametrize("extra", [{"kind": "merge"}, {"colour": "red"}])
def test_an_unknown_kind_or_field_is_not_ignored(extra: dict[str, object]) -> None:
    plain = msgspec.to_builtins(EVERY_KIND[0])
    line = encode_line(0, "", "n", {**plain, **extra})  # type: ignore[arg-type]
    with pytest.raises(CheckpointDamaged, match=r"merge|colour"):
        decode_line("log/0", line, 0, "")


def test_a_record_at_the_place_of_another_is_noticed(memory: Store) -> None:
    fill(memory, EVERY_KIND)
    replace_object(memory, record_name(3), memory.get(record_name(2)))
    with pytest.raises(CheckpointDamaged, match="it holds record 2"):
        read_line("", memory.get(record_name(3)), 3)
    assert Log(memory).read().commit(3).step == 300


def test_a_store_that_lets_two_writers_have_a_number_is_noticed(memory: Store) -> None:
    """Goal: a store without real conditional puts cannot do harm silently. Method: record 1 is overwritten by a second writer
    after record 2 was appended to the first one's."""
    fill(memory, EVERY_KIND[:3])
    _, check = decode_line(record_name(0), memory.get(record_name(0)), 0, "")
    replace_object(memory, record_name(1), encode_line(1, check, "second", Fence(1, 1, "second", 0.0)))
    with pytest.raises(CheckpointDamaged, match=r"00000002.*conditional puts"):
        Log(memory).read()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([Fence(2, 1, "a", 0.0), Fence(2, 1, "b", 0.0)], "incarnation 2 follows 2"),
        ([Fence(2, 1, "a", 0.0), Commit(1, 5, 0, "b3:", 0, 0.0)], "incarnation 1 commits under 2"),
        ([Commit(0, 5, 0, "b3:", 0, 0.0)], "commits under -1"),
        ([Fence(0, 1, "a", 0.0), Quarantine(0, "x", 0, 0.0)], "there is no commit 0"),
        ([Fence(0, 1, "a", 0.0), Pin(7, "x", 0.0)], "there is no commit 7"),
        ([*EVERY_KIND[:2], Retire((1,), 0.0), Retire((1,), 0.0)], "commit 1 was retired already"),
        ([*EVERY_KIND[:2], Retire((1, 1), 0.0)], "named twice"),
        ([*EVERY_KIND[:2], Pin(1, "x", 0.0), Retire((1,), 0.0)], "is pinned"),
    ],
)
def test_a_log_that_breaks_its_rules_is_refused(memory: Store, records: list[Record], reason: str) -> None:
    check = ""
    for number, record in enumerate(records):
        line = encode_line(number, check, "n", record)
        memory.put_if_absent(record_name(number), line)
        _, check = decode_line("", line, number, check)
    log = Log(memory)
    for _ in range(2):
        with pytest.raises(CheckpointDamaged, match=reason):
            log.read()


def test_supposing_changes_nothing() -> None:
    history = History().after(EVERY_KIND[:3])
    assert list(history.supposing(Retire((1,), 0.0)).living) == [2]
    assert list(history.living) == [1, 2]
    assert history.after(EVERY_KIND[3:4]).length == 4


def test_opening_a_long_log_takes_few_round_trips(memory: Store) -> None:
    """Goal: opening does not cost a round trip per record. Method: count them for a log over several pages of each size."""
    count = PAGE_SIZES[0] + 3 * PAGE_SIZES[1] + 5
    fill(memory, fences(count))
    watched, log = watch(memory)
    assert log.read().length == count
    # One large page, three small ones, five records, and both copies of the number that is free.
    assert watched.asked == {"list": 3, "get": 1 + 3 + 5 + 2}
    assert log.read().length == count
    assert watched.asked == {"list": 3, "get": 1 + 3 + 5 + 4}


def test_pages_that_are_missing_or_damaged_cost_time_and_nothing_else(memory: Store) -> None:
    small = PAGE_SIZES[1]
    fill(memory, fences(3 * small))
    whole = memory.get(page_name(small, 1))
    memory.delete(page_name(small, 0))
    replace_object(memory, page_name(small, 1), whole.replace(b"token", b"tokem", 1))
    replace_object(memory, page_name(small, 2), whole)

    watched, log = watch(memory)
    assert [record for _, record in log.read().records()] == fences(3 * small)
    # Two pages that do not help, all records, two looks at whether a page is now as it should be, and the free number.
    assert watched.asked["get"] == 2 + 3 * small + 2 + 2
    assert len(memory.get(page_name(small, 0)).splitlines()) == small


def test_a_directory_holds_records_as_plain_json(local: Store, tmp_path: Path) -> None:
    fill(local, EVERY_KIND)
    line = msgspec.json.decode((tmp_path / "checkpoints/log/00000002.json").read_bytes())
    assert line["record"]["kind"] == "commit"
    assert line["record"]["step"] == 200
