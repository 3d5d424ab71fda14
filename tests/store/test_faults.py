"""Every fault of a network or a store becomes a success after another try, or the one typed error for it, within limits.

A real nginx behind a proxy that breaks answers on purpose (tests/faulty). Limits are small, so that nothing has to be timed: what is
asserted is what was asked of the server, how often, and how it ended.
"""

import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock._rust import store_counts, store_flying
from penstock.errors import (
    ObjectChanged,
    ObjectMissing,
    StoreDenied,
    StoreFailed,
    StoreThrottled,
    StoreTimedOut,
    UsageError,
)
from penstock.store import Limits
from penstock.store.remote import RemoteStore
from tests.faulty.faults import Delay, Drop, Fault, Reset, Stall, Status, Throttle, Truncate
from tests.faulty.proxy import Proxy

BYTES = 300_000
CONTENT = random.Random(8).randbytes(BYTES)


@pytest.fixture(autouse=True)
def content(web_folder: Path) -> None:
    (web_folder / "a.bin").write_bytes(CONTENT)


def limits(**other: Any) -> Limits:
    small: dict[str, Any] = {
        "connect_s": 2,
        "read_s": 0.4,
        "total_s": 20,
        "tries": 4,
        "pause_s": 0.001,
        "pause_max_s": 0.01,
    }
    return Limits(**{**small, **other})


def store(proxy: Proxy, **other: Any) -> RemoteStore:
    return RemoteStore(proxy.url, limits=limits(**other))


def since(before: dict[str, Any], name: str) -> int:
    return int(store_counts()[name]) - int(before[name])


@pytest.mark.parametrize(
    "fault",
    [
        Status(503),
        Status(429),
        Status(500),
        Status(502),
        Drop(),
        Reset(),
        Reset(after=100_000),
        Truncate(after=100_000),
        Stall(after=None),
        Stall(after=100_000),
    ],
    ids=str,
)
def test_a_fault_that_passes_is_not_seen(proxy: Proxy, fault: Fault) -> None:
    """Goal: two failures in a row cost two more tries and nothing else. Method: read through each fault, twice in a row."""
    proxy.add(fault, times=2, method="GET")
    before = store_counts()
    assert store(proxy).get_range("a.bin", 0, BYTES) == CONTENT
    assert len(proxy.requests("a.bin")) == 3
    assert since(before, "retries") == 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Status(503), StoreThrottled),
        (Status(429), StoreThrottled),
        (Status(500), StoreFailed),
        (Drop(), StoreFailed),
        (Reset(), StoreFailed),
        (Truncate(after=0), StoreFailed),
        (Stall(after=None), StoreTimedOut),
        (Stall(after=0), StoreTimedOut),
    ],
    ids=str,
)
def test_a_fault_that_stays_is_a_typed_error(proxy: Proxy, fault: Fault, error: type[Exception]) -> None:
    """Goal: the error names object, bytes and tries. Method: the fault never ends; the limit of tries does."""
    proxy.add(fault)
    with pytest.raises(error) as caught:
        store(proxy, tries=3).get_range("a.bin", 5, 100)
    problem: Any = caught.value
    assert (problem.verb, problem.url, problem.range) == ("read", f"{proxy.url}/a.bin", (5, 105))
    assert problem.tries == 3 == len(proxy.requests("a.bin"))
    assert "3 tries" in str(problem)


@pytest.mark.parametrize(
    ("code", "error"),
    [(404, ObjectMissing), (401, StoreDenied), (403, StoreDenied), (400, StoreFailed), (416, StoreFailed)],
)
def test_what_another_try_cannot_mend_is_said_at_once(
    proxy: Proxy, code: int, error: type[Exception]
) -> None:
    proxy.add(Status(code))
    with pytest.raises(error, match=r"a\.bin"):
        store(proxy).get("a.bin")
    assert len(proxy.requests()) == 1


def test_a_broken_answer_is_resumed_where_it_broke(proxy: Proxy) -> None:
    """Goal: bytes that came are not fetched again. Method: the answer ends in order after 100,000 bytes."""
    proxy.add(Truncate(after=100_000), times=1)
    assert store(proxy).get_range("a.bin", 1_000, 200_000) == CONTENT[1_000:201_000]
    assert [one.request.range for one in proxy.requests()] == [(1_000, 201_000), (101_000, 201_000)]
    assert proxy.bytes_of("a.bin") == 200_000
    proxy.add(Truncate(after=250_000), times=1)
    assert store(proxy).get("a.bin") == CONTENT
    assert proxy.requests()[-1].request.range is not None
    assert proxy.requests()[-1].sent == BYTES - 250_000


def test_a_large_read_is_made_of_parts(proxy: Proxy) -> None:
    proxy.add(Reset(after=1_000), times=2)
    assert store(proxy, part_bytes=65_536).get_range("a.bin", 0, BYTES) == CONTENT
    assert {one.request.range for one in proxy.requests()} >= {(0, 60_000), (240_000, 300_000)}


def test_the_time_a_store_asks_for_is_kept(proxy: Proxy) -> None:
    """Goal: Retry-After counts. Method: it asks for longer than the whole call may take, so no second request is made."""
    proxy.add(Status(503, retry_after_s=30))
    with pytest.raises(StoreThrottled, match="no time is left"):
        store(proxy).get("a.bin")
    assert len(proxy.requests()) == 1
    proxy.heal()
    proxy.add(Status(503, retry_after_s=0), times=1)
    assert store(proxy).get("a.bin") == CONTENT


def test_a_trickle_ends_at_the_deadline(proxy: Proxy) -> None:
    """Goal: progress alone does not keep a call alive. Method: 100 kB/s, half a second in all; bytes never stop."""
    proxy.add(Throttle(bytes_per_s=100_000))
    with pytest.raises(StoreTimedOut, match=r"not done within 0\.5 s"):
        store(proxy, total_s=0.5).get_range("a.bin", 0, BYTES)


def test_a_store_that_is_not_there_is_an_error_with_its_reason() -> None:
    with pytest.raises(StoreFailed, match="refused"):
        RemoteStore("http://127.0.0.1:9", limits=limits(tries=2)).get("a.bin")


def test_a_storm_of_errors_does_not_multiply_traffic(proxy: Proxy) -> None:
    """Goal: the budget is the client's. Method: 40 reads fail for ever; without it there would be 160 requests."""
    proxy.add(Status(503))
    client = store(proxy, retry_burst=5, retry_rate=0.001, tries=4, total_s=5)
    for _ in range(40):
        with pytest.raises(StoreThrottled):
            client.get_range("a.bin", 0, 10)
    assert len(proxy.requests()) == 45


def test_a_slow_read_is_asked_for_a_second_time(proxy: Proxy) -> None:
    """Goal: one stalled answer does not stall the reader. Method: enough quick reads, then one that says nothing for a minute."""
    client = store(proxy, read_s=60, total_s=60, hedge_samples=20, hedge_share=0.05)
    for _ in range(40):
        client.get_range("a.bin", 0, 1000)
    before = store_counts()
    proxy.add(Stall(after=500), times=1)
    assert client.get_range("a.bin", 0, 1000) == CONTENT[:1000]
    assert (since(before, "hedges"), since(before, "hedge_wins"), since(before, "retries")) == (1, 1, 0)


def test_second_requests_stay_within_their_share(proxy: Proxy) -> None:
    """Goal: a store that became slow does not get twice the load. Method: every read is late after the first 40."""
    client = store(proxy, read_s=60, total_s=60, hedge_samples=20, hedge_share=0.05)
    for _ in range(40):
        client.get_range("a.bin", 0, 1000)
    proxy.forget()
    proxy.add(Delay(seconds=0.05))
    for _ in range(20):
        client.get_range("a.bin", 0, 1000)
    assert len(proxy.requests()) <= 20 + 3


def test_an_object_that_changed_is_not_mixed(proxy: Proxy, web_folder: Path) -> None:
    """Goal: reads are pinned to an entity tag. Method: replace the file, with a length of its own, between two reads."""
    client = store(proxy).client
    _, size_bytes, _, tag = client.describe("a.bin")
    assert (size_bytes, client.get_range("a.bin", 0, 10, tag)) == (BYTES, CONTENT[:10])
    (web_folder / "a.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(ObjectChanged) as caught:
        client.get_range("a.bin", 10, 10, tag)
    assert caught.value.range == (10, 20)
    before = proxy.requests()[-1]
    assert (before.status, before.request.range) == (412, (10, 20))


def test_what_changes_between_two_tries_is_not_mixed_either(proxy: Proxy, web_folder: Path) -> None:
    """Goal: a resumed read never joins two objects. Method: the answer breaks, and the file is another one before the rest is asked."""
    proxy.add(Truncate(after=100_000), times=1)
    rule = proxy.add(Delay(seconds=0.3), times=1)
    outcome: list[BaseException | bytes] = []

    def read() -> None:
        try:
            outcome.append(store(proxy, read_s=5).get_range("a.bin", 0, BYTES))
        except ObjectChanged as problem:
            outcome.append(problem)

    reader = threading.Thread(target=read)
    reader.start()
    while rule.happened == 0 and reader.is_alive():
        threading.Event().wait(0.001)
    (web_folder / "a.bin").write_bytes(CONTENT[::-1][:-1])
    reader.join(30)
    assert [type(one) for one in outcome] == [ObjectChanged]


def test_what_is_under_way_says_object_range_and_stage(web: str) -> None:
    """Goal: a stall can be explained while it lasts. Method: look at the table while an answer stalls."""
    with Proxy(web) as proxy:
        proxy.add(Stall(after=10))
        client = store(proxy, read_s=60, total_s=60, tries=1)

        def read() -> None:
            with pytest.raises(StoreFailed):
                client.get_range("a.bin", 3, 50)

        reader = threading.Thread(target=read)
        reader.start()
        mine: list[Any] = []
        while not mine and reader.is_alive():
            mine = [
                one for one in store_flying() if one[1].startswith(proxy.url) and one[3] == "moving bytes"
            ]
    # The proxy is gone, and with it the connection.
    reader.join(30)
    assert mine[0][:3] == ("read", f"{proxy.url}/a.bin", (3, 53))
    assert not [one for one in store_flying() if one[1].startswith(proxy.url)]


def _read_in_child(client: RemoteStore) -> None:
    assert client.get_range("a.bin", 7, 1000) == CONTENT[7:1007]


def test_a_child_of_a_fork_reads_with_connections_of_its_own(proxy: Proxy) -> None:
    """Goal: fork after open works and never hangs. Method: the parent has read; a forked child reads with the same object."""
    client = store(proxy)
    client.get("a.bin")
    child = multiprocessing.get_context("fork").Process(target=_read_in_child, args=(client,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert client.get("a.bin") == CONTENT


def test_limits_that_make_no_sense_are_refused(proxy: Proxy) -> None:
    with pytest.raises(StoreFailed, match="`tries`"):
        store(proxy, tries=0)
    with pytest.raises(UsageError, match="PENSTOCK_STORE_TRIES has to be a number, not 'many'"):
        Limits.from_environment({"PENSTOCK_STORE_TRIES": "many"})
    assert Limits.from_environment({"PENSTOCK_STORE_TOTAL_S": "3"}) == Limits(total_s=3.0)
    assert Limits.from_environment({}) == Limits()
