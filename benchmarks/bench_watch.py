"""A watcher's cost: 64 ranks with 100,000 steps each, refreshed once a second while every rank finishes 10 steps a second; at most 5 % of a core.

Beside it a real Prometheus server scrapes a job of two ranks through ``kill -9`` of one of them: no scrape fails, and the dead rank's counters stay
until its next life. Rows are made by the real writer; ranks have copies of one rank's blocks.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.report.scrapes import free_port, scrape, value
from tests.report.tables import Table as StepTable
from tests.torch.stream import make_stream

from benchmarks.table import Table
from penstock.process.job.catalogue import jobs
from penstock.report.watch.watcher import EVERY_S, Watcher

RANKS, STEPS, STEPS_PER_S = 64, 100_000, 10
REFRESHES = 20
SHARE_MAX = 0.05
ROOT = Path(__file__).resolve().parents[1]
_GANG = (
    "import sys; from pathlib import Path; from penstock.run import Policy; from tests.run.programs import *; "
    "train(Stream(Path(sys.argv[1])), Path(sys.argv[2]), Policy(save_every=50), wrap=WRAPS['ddp'])"
)


def run() -> Table:
    """Measure in one run."""
    table = Table(
        f"a refresh a second of {RANKS} ranks with {STEPS} steps costs at most 5 % of a core", "s of CPU"
    )
    table.add("5 % of a core", SHARE_MAX * EVERY_S)
    with tempfile.TemporaryDirectory() as folder:
        _many_ranks(Path(folder) / "run", table)
    with tempfile.TemporaryDirectory() as folder:
        _prometheus(Path(folder), table)
    return table


def _many_ranks(path: Path, table: Table) -> None:
    (path / "journal").mkdir(parents=True)
    first = StepTable(path)
    first.steps(range(STEPS), tokens=4096)
    first.close()
    source = path / "steps" / f"{first.stem}-0.pst"
    for rank in range(1, RANKS):
        shutil.copy(source, path / "steps" / f"000000-{rank:04d}-0.pst")
    writer = os.fork()
    if writer == 0:
        _write(path, first.at)
    try:
        _watch(path, table)
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)


def _write(path: Path, at: int) -> None:
    """Every rank goes on, in files of their own, until this process is killed."""
    tables = [StepTable(path, 0, rank, at=at) for rank in range(RANKS)]
    step = STEPS
    while True:
        for one in tables:
            one.steps(range(step, step + 1), 10**9 // STEPS_PER_S, tokens=4096)
        step += 1
        time.sleep(1 / STEPS_PER_S)


def _watch(path: Path, table: Table) -> None:
    watcher = Watcher(runs=lambda: [path], raises_alerts=True)
    begin = time.process_time()
    watcher.refresh(at_once=True)
    first_s = time.process_time() - begin
    # The second reads everything once more, because ranks have begun new files meanwhile.
    time.sleep(EVERY_S)
    watcher.refresh(at_once=True)
    costs = []
    for _ in range(REFRESHES):
        time.sleep(EVERY_S)
        begin = time.process_time()
        snapshots = watcher.refresh()
        costs.append(time.process_time() - begin)
    watcher.close()
    speed = snapshots[0].figures.speed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    costs.sort()
    mean = sum(costs) / len(costs)
    table.add(
        "a refresh, mean", mean, f"{100 * mean / EVERY_S:.2f} % of a core; {speed['steps']} steps summed"
    )
    table.add("a refresh, worst", costs[-1])
    table.add("the first look, which reads everything", first_s, f"peak memory {peak:.0f} MB")
    assert len(snapshots[0].ranks) == RANKS


def _prometheus(folder: Path, table: Table) -> None:
    """A job of two ranks, scraped by a real server through the kill of a rank."""
    (folder / "stream").mkdir()
    stream = make_stream(folder / "stream")
    port, own = free_port(), free_port()
    config = {
        "scrape_configs": [
            {
                "job_name": "run",
                "scrape_interval": "1s",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            }
        ]
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    variables = {
        **os.environ,
        "PENSTOCK_HOME": str(folder / "home"),
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
    }
    variables["PENSTOCK_METRICS"] = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "penstock.cli.main", "run", "--ranks", "2", "--restarts", "3", "--"]
    job = subprocess.Popen(
        [*command, sys.executable, "-c", _GANG, str(stream.folder), str(folder / "run")],
        env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    server = None
    try:
        _wait(lambda: _told(port, "penstock_rank_step", rank="1") > 20)
        options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        options += [f"--web.listen-address=127.0.0.1:{own}"]
        server = subprocess.Popen(
            ["prometheus", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _wait(lambda: _count(own, 'count_over_time(up{job="run"}[10m])') >= 5)
        state = jobs(folder / "home")[0].state()
        assert state is not None
        os.kill(next(worker["pid"] for _, worker in state.workers if worker["rank"] == 1), signal.SIGKILL)
        _wait(lambda: _count(own, "max(penstock_rank_life)") == 1)
        _wait(lambda: _count(own, 'min_over_time(penstock_rank_step{rank="1"}[5s])') > 0)
        table.rows[-1].note += _killed(port, folder / "home")
    finally:
        job.terminate()
        job.wait(timeout=60)
        if server is not None:
            table.rows[-1].note += _story(own)
            server.terminate()
            server.wait(timeout=30)


def _killed(port: int, home: Path) -> str:
    """How long nobody answers after the watcher was killed."""
    job = os.fsencode(jobs(home)[0].directory)
    for entry in Path("/proc").iterdir():
        words = b"" if not entry.name.isdigit() else (entry / "cmdline").read_bytes()
        if b"--guarded-by" in words.split(b"\0") and job in words:
            os.kill(int(entry.name), signal.SIGKILL)
            begin = time.monotonic()
            _wait(lambda: scrape(port) is not None)
            return f"; a watcher that is killed answers again after {time.monotonic() - begin:.1f} s"
    return "; no watcher was there to kill"


def _story(port: int) -> str:
    """What the server has stored."""
    total = _count(port, 'count_over_time(up{job="run"}[10m])')
    # The last one or two came after the job was told to end.
    good = _count(port, 'sum_over_time(up{job="run"}[10m])')
    steps = _count(port, 'count_over_time(penstock_rank_step{rank="1"}[10m])')
    lives = _count(port, "count(count by (life) (last_over_time(penstock_feed_batches_total[10m])))")
    return (
        f"; Prometheus: {good:.0f} of {total:.0f} scrapes, {steps:.0f} with rank 1, through {lives:.0f} lives"
    )


def _told(port: int, family: str, **labels: str) -> float:
    number = value(scrape(port) or "", family, **labels)
    return -1.0 if number is None else number


def _count(port: int, query: str) -> float:
    """The answer of the server to a query; -1 where it has none."""
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            result: Any = json.load(answer)["data"]["result"]
    except OSError:
        return -1.0
    return float(result[0]["value"][1]) if result else -1.0


def _wait(condition: Any, limit_s: float = 120.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("what the benchmark waits for did not happen")
        time.sleep(0.2)
