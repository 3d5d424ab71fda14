"""D6 in rows of docs/operations.md about processes: signals, forks, and a clock that jumps."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import FeedClosed
from tests.conftest import need
from tests.faulty.faults import Status
from tests.operations.conftest import STEPS, Far
from tests.operations.reading import BATCH, SEED
from tests.operations.rows import row

_RECIPE = """\
seed = {seed}
batch = {batch}
sources = [{{ name = "{name}" }}]
"""


@row("clock jumps")
def test_a_clock_that_jumps_changes_nothing(far: Far) -> None:
    need("faketime", remedy="apt-get install faketime (`make test` as root does it)")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    clock = far.place / "clock"
    clock.write_text("+0")
    variables = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with far.reading(**variables) as reader:
        seen = []
        for step in range(STEPS):
            # Minutes forward and back, more than signatures allow and less; requests fail once on the way, so that pauses are made.
            clock.write_text(("+0", "+600s", "-600s", "+0")[step % 4])
            if step % 16 == 0:
                far.proxy.add(Status(503), times=1, method="GET", path="tokens-")
            seen.append(reader.batch()["digest"])
        assert seen == far.digests


@row("SIGTERM")
def test_a_reader_that_is_told_to_stop_stops(far: Far) -> None:
    with far.reading() as reader:
        assert reader.batch()["digest"] == far.digests[0]
        reader.process.send_signal(signal.SIGTERM)
        assert reader.process.wait(30) == -signal.SIGTERM


@row("SIGTERM")
def test_a_service_that_is_told_to_stop_exits_in_order(far: Far) -> None:
    with _service(far) as (server, url), ps.open(url) as feed:
        assert next(feed).digest == far.digests[0]
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


@row("kill -9 of a reader of this host")
def test_readers_of_a_host_go_on_without_the_one_that_was_killed(far: Far) -> None:
    before = set(os.listdir("/dev/shm"))
    with far.reading("share") as first, far.reading("share") as second, far.reading("share") as third:
        readers = [first, second, third]
        for reader in readers:
            assert reader.rest(4) == far.digests[:4]
        for victim in (first, second):
            os.kill(victim.pid, signal.SIGKILL)
            readers.remove(victim)
            for reader in readers:
                following = reader.batch()
                assert far.digests[following["step"]] == following["digest"]
        assert third.rest(STEPS - 6) == far.digests[6:]
        third.end()
    assert set(os.listdir("/dev/shm")) <= before


@row("kill -9 of a service")
def test_clients_turn_to_another_server_for_the_same_step(far: Far) -> None:
    with _service(far) as (one, first_url), _service(far) as (two, second_url):
        url = f"{first_url},{second_url.removeprefix('penstock://')}"
        with ps.open(url) as feed:
            seen = [next(feed).digest for _ in range(8)]
            one.kill()
            seen += [next(feed).digest for _ in range(8)]
            assert seen == far.digests[:16]
            two.kill()
            two.wait(30)
        assert one.wait(30) == -signal.SIGKILL


@row("kill -9 of a client")
def test_a_service_outlives_its_clients(far: Far) -> None:
    with _service(far) as (_, url):
        program = "import sys, penstock as ps\nfeed = ps.open(sys.argv[1])\nnext(feed)\nprint(flush=True)\nsys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"\n"
            client.kill()
        with ps.open(url) as feed:
            assert [next(feed).digest for _ in range(8)] == far.digests[:8]


@row("fork after open")
def test_a_feed_in_the_child_of_a_fork_is_refused_and_the_parent_goes_on(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**far.variables, "PENSTOCK_CACHE": str(far.cache)}.items():
        monkeypatch.setenv(name, value)
    recipe = ps.Recipe(sources=[ps.Source(far.address)], seed=SEED, batch=BATCH)
    with ps.open(recipe, registry=far.registry) as feed:
        assert next(feed).digest == far.digests[0]
        child = os.fork()
        if child == 0:
            try:
                next(feed)
            except FeedClosed:
                # A feed of its own works there.
                with ps.open(recipe, registry=ps.Registry(far.registry.url), threads=0) as own:
                    os._exit(0 if next(own).digest == far.digests[0] else 3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(_reaped(child)) == 0
        assert next(feed).digest == far.digests[1]


def _reaped(child: int) -> int:
    """How a child ended, within a limit."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


@contextmanager
def _service(far: Far) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """``penstock data serve`` as a person would start it, and the URL for clients."""
    recipe, ready = far.place / "recipe.toml", far.place / f"ready-{time.monotonic_ns()}"
    recipe.write_text(_RECIPE.format(seed=SEED, batch=BATCH, name=far.address))
    words = ["data", "serve", str(recipe), "--bind", "127.0.0.1:0", "--ready-file", str(ready)]
    variables = {**os.environ, **far.variables, "PENSTOCK_CACHE": str(far.cache)}
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", *words, "--registry", far.registry.url],
        env=variables,
        stdout=subprocess.DEVNULL,
    ) as server:
        try:
            until = time.monotonic() + 60
            while not (ready.exists() and ready.read_text().strip()):
                assert server.poll() is None
                assert time.monotonic() < until
                os.sched_yield()
            yield server, ready.read_text().strip()
        finally:
            server.kill()
