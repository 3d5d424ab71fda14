"""Processes of a host fetch a byte once, whatever happens to some of them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cache.conftest import PATIENCE_S, Far
from tests.faulty.faults import Flip, Stall


def test_processes_that_read_the_same_cold_file_fetch_it_once(far: Far) -> None:
    """Goal: one fetch per host. Method: four processes begin at once; the proxy counts bodies."""
    readers = [far.start("waiting") for _ in range(4)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    counts = [far.answer(reader) for reader in readers]
    assert far.bytes <= far.proxy.bytes_of("far.jsonl") <= 1.02 * far.bytes
    assert sum(one["pieces_fetched_bytes"] for one in counts) == far.bytes
    far.proxy.forget()
    assert far.read("twice")["cache_misses"] == 0
    assert far.proxy.bytes_of("far.jsonl") == 0


def test_a_hundred_kills_leave_nothing_and_hold_nobody_up(far: Far) -> None:
    """Goal: D6. Method: readers of an empty cache are killed at any instant; the next one must not wait for a lock of theirs."""
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-m", "tests.cache.nursery", str(far.registry), "direct", "100"]
    done = subprocess.run(
        command,
        env=far.environment(PENSTOCK_CACHE_PATIENCE_S=str(PATIENCE_S)),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["killed"] > 50
    assert report["rotten"] == 0
    assert report["names"] == ["ledger", "locks", "pieces"]
    assert report["strange"] == []
    # Temporary files there are of other tests, which run at the same time.
    left = set(os.listdir("/dev/shm")) - before
    assert not [name for name in left if not name.startswith("tmp")]


def test_a_stopped_process_does_not_stop_the_others(
    far: Far, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Goal: waiting is bounded. Method: SIGSTOP a reader while its request hangs, so that it holds locks for ever."""
    far.proxy.add(Stall(after=100))
    stopped = far.start()
    wait_until(lambda: bool(far.proxy.requests("far.jsonl", "GET")))
    stopped.send_signal(signal.SIGSTOP)
    far.proxy.heal()
    assert far.read(PENSTOCK_CACHE_PATIENCE_S="0.2")["flights_impatient"] > 0
    assert far.read(PENSTOCK_CACHE_PATIENCE_S="60")["cache_misses"] == 0
    stopped.send_signal(signal.SIGKILL)


def test_a_child_of_a_fork_reads_with_what_its_parent_has_open(far: Far) -> None:
    far.read("forking")
    assert far.proxy.bytes_of("far.jsonl") == far.bytes
    far.read("forking", PENSTOCK_CACHE="off")


def test_wrong_bytes_on_the_way_are_fetched_again(far: Far) -> None:
    far.proxy.add(Flip(at=2_000_000), times=2)
    assert far.read()["corrupt_refetched"] == 2
    assert far.read()["cache_misses"] == 0


def test_without_a_cache_the_rows_are_the_same(far: Far) -> None:
    assert far.read("twice", PENSTOCK_CACHE="off")["cache_hits"] == 0
    assert not far.cache.exists()
    unusable = far.registry / "file"
    Path(unusable).write_text("not a directory")
    far.read(PENSTOCK_CACHE=str(unusable))
