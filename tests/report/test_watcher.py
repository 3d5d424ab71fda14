"""The watcher as a process: scraped through kills of ranks and of itself, gone with the job, and never in the way of training."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.report.watch.alert_book import read_alerts
from penstock.report.watch.watcher import Watcher
from tests.conftest import ROOT
from tests.process import jobs
from tests.process.jobs import Running, is_alive, wait_until
from tests.report.scrapes import check, free_port, scrape, value
from tests.report.tables import Table
from tests.torch.stream import Stream, make_stream

PATH = f"{ROOT / 'python'}:{ROOT}"
GANG = ROOT / "tests/report/gang_rank.py"
#: Trains until a file is there.
ALONE = (
    "import sys; from pathlib import Path; from penstock.run import Policy; from tests.run.small import *; "
    "from tests.torch.stream import Stream; from penstock.state.ranks.clock import Clock\n"
    "run = make(Stream(Path(sys.argv[1])), Path(sys.argv[2]), Policy(save_every=10**6)); state = start()\n"
    "for step, _ in run.steps(state):\n"
    "    Clock().pause(0.02); run.report(loss=1.0)\n"
    "    if Path(sys.argv[2] + '.enough').exists(): run.stop('enough')\n"
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*words: str, **environment: str) -> Running:
        variables = {"PYTHONPATH": PATH, **environment}
        started.append(jobs.start(tmp_path / "home", *words, environment=variables, cwd=tmp_path))
        return started[-1]

    yield begin
    for job in started:
        jobs.end(job)


def watchers(of: Path | str) -> dict[int, str]:
    """Processes of watchers that were started for something, by number; with the role of each."""
    roles = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"penstock.report.watch" in words and any(os.fsencode(of) in word for word in words):
                roles[int(entry.name)] = "guard" if b"--guard" in words else "watcher"
    return {pid: role for pid, role in roles.items() if is_alive(pid)}


def pid_of(role: str, of: Path | str) -> int:
    """The process of a role, once there is one and the other beside it."""
    wait_until(
        lambda: sorted(watchers(of).values()) == ["guard", "watcher"], f"both are there: {watchers(of)}"
    )
    return next(pid for pid, known in watchers(of).items() if known == role)


def test_two_ranks_are_scraped_through_a_kill_and_nothing_is_left(
    stream: Stream, tmp_path: Path, start_job: Callable[..., Running]
) -> None:
    """Goal: numbers of a dead rank stay until its next life; a watcher or guard that is killed is back; both end with the job. Method: a real job of
    two ranks, ``kill -9`` of a rank, of the watcher and of its guard, and scrapes all the time, which promtool checks."""
    port, out = free_port(), tmp_path / "run"
    (out / "journal").mkdir(parents=True)
    command = [sys.executable, str(GANG), str(stream.folder), str(out)]
    job = start_job("--ranks", "2", "--restarts", "3", "--", *command, PENSTOCK_METRICS=f"127.0.0.1:{port}")
    batches = "penstock_feed_batches_total"

    def told(name: str, **labels: str) -> float:
        text = scrape(port)
        number = None if text is None else value(text, name, run="run", **labels)
        return -1.0 if number is None else number

    wait_until(lambda: told(batches, rank="1", life="0") > 10, "rank 1 has read batches", timeout_s=120)
    wait_until(lambda: told("penstock_rank_step", rank="1") > 10, "its steps are seen", timeout_s=120)
    before = told(batches, rank="1", life="0")
    (worker,) = (worker["pid"] for _, worker in job.state().workers if worker["rank"] == 1)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not is_alive(worker), "rank 1 is dead")
    text = scrape(port)
    assert text is not None
    check(text)
    # Unless the next life is there already, which has counts of its own.
    stayed = value(text, batches, run="run", rank="1", life="0")
    assert stayed is None or stayed >= before
    wait_until(lambda: told(batches, rank="1", life="1") > 0, "the next life has begun", timeout_s=120)
    wait_until(lambda: told("penstock_run_lives") == 2, "both lives are counted", timeout_s=120)
    assert told(batches, rank="1", life="0") == -1

    for role in ("watcher", "guard"):
        killed = pid_of(role, job.job.directory)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda killed=killed: not is_alive(killed), f"the {role} is dead")  # type: ignore[misc]
        wait_until(
            lambda: told("penstock_rank_step", rank="0") > 0,
            f"it is served again after the {role} was killed",
        )
        pid_of(role, job.job.directory)

    assert job.launcher is not None
    job.launcher.send_signal(signal.SIGTERM)
    job.launcher.communicate(timeout=60)
    wait_until(lambda: not watchers(job.job.directory), "no watcher is left")
    report = report_of(evidence_of(out)).to_json()
    assert report["ledger"]["incidents"]


def test_a_run_elsewhere_is_watched_by_its_first_rank_and_a_port_in_use_is_a_warning(
    stream: Stream, tmp_path: Path
) -> None:
    """Goal: without ``penstock run`` the first local rank starts the watcher; an address that is taken ends nothing. Method: a program of its own with
    ``alerts.toml`` beside it, on a port that somebody has and then gives back."""
    out = tmp_path / "run"
    (tmp_path / "alerts.toml").write_text(
        '[alerts.late]\nkind = "absence"\nsignal = "scalar.never"\nfor_s = 0.5\n'
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = subprocess.Popen(
            [sys.executable, "-c", ALONE, str(stream.folder), str(out)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PATH, "PENSTOCK_METRICS": f"127.0.0.1:{port}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(
            lambda: any(entry.alert == "late" for entry in read_alerts(out)),
            "an alert was raised",
            timeout_s=60,
        )
    wait_until(
        lambda: value(scrape(port) or "", "penstock_rank_step", rank="0") is not None,
        "it is served",
        timeout_s=30,
    )
    text = scrape(port)
    assert text is not None
    check(text)
    assert value(text, "penstock_alert_firing", alert="late") == 1
    assert value(text, "penstock_feed_batches_total", rank="0") is not None
    out.with_suffix(".enough").touch()
    _, trouble = program.communicate(timeout=60)
    assert program.returncode == 0
    assert f"cannot be served at 127.0.0.1:{port}" in trouble
    assert "penstock: alert: run: late: rank 0: no scalar.never" in trouble
    assert not watchers(out)


def test_a_detached_job_is_watched_until_it_ends(
    stream: Stream, tmp_path: Path, start_job: Callable[..., Running]
) -> None:
    """Goal: nobody stands at the terminal, and still nothing is left. Method: a detached job; its watcher ends with it."""
    port, out = free_port(), tmp_path / "run"
    command = [sys.executable, "-c", ALONE, str(stream.folder), str(out)]
    job = start_job("--detach", "--", *command, PENSTOCK_METRICS=f"127.0.0.1:{port}")
    wait_until(
        lambda: value(scrape(port) or "", "penstock_rank_step", rank="0") is not None,
        "it is served",
        timeout_s=60,
    )
    assert sorted(watchers(job.job.directory).values()) == ["guard", "watcher"]
    out.with_suffix(".enough").touch()
    job.wait_phase("succeeded")
    wait_until(lambda: not watchers(job.job.directory), "no watcher is left")


def test_a_watcher_ends_with_a_rank_that_is_killed(stream: Stream, tmp_path: Path) -> None:
    out = tmp_path / "run"
    program = subprocess.Popen(
        [sys.executable, "-c", ALONE, str(stream.folder), str(out)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PATH, "PENSTOCK_METRICS": f"127.0.0.1:{free_port()}"},
    )
    wait_until(lambda: len(watchers(out)) == 2, "it is watched", timeout_s=60)
    program.kill()
    program.wait()
    wait_until(lambda: not watchers(out), "no watcher is left")


def test_a_file_of_alerts_that_is_wrong_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    (tmp_path / "alerts.toml").write_text("[alerts.stall]\nfor_s = 'long'\n")
    assert main(["run", "--", "true"]) == 2
    assert "alerts.stall.for_s: must be a finite number, got 'long'" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_names_with_anything_in_them_are_data(tmp_path: Path) -> None:
    """Goal: hostile names. Method: a run and a number of a program whose names hold quotes, backslashes, newlines and escapes."""
    name = 'a"b\\c\n{x="y"} 1\x1b[31m é'
    run = tmp_path / name
    (run / "journal").mkdir(parents=True)
    table = Table(run)
    column = table.writer.column(f"scalar.{name}", is_float=True)
    assert column is not None
    table.steps(range(100), tokens=5)
    table.writer.patch_float(99, column, float("nan"))
    table.flush()
    watcher = Watcher(runs=lambda: [run])
    watcher.refresh(at_once=True)
    check(watcher.text())
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    number = value(watcher.text(), "penstock_rank_scalar", run=escaped, name=escaped)
    assert number is not None
    assert number != number
    table.close()
    watcher.close()


def test_one_watcher_of_a_host_raises_alerts(tmp_path: Path) -> None:
    """Goal: a second watcher, such as one that somebody started by hand, tells nothing twice, and takes over when the first is gone."""
    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    (run / "alerts.toml").write_text(
        '[alerts.x]\nkind = "threshold"\nsignal = "scalar.loss"\nabove = 0\nfor_s = 0\n'
    )
    table = Table(run)
    table.steps(range(10))
    table.flush()
    first, second = Watcher(runs=lambda: [run]), Watcher(runs=lambda: [run])
    for watcher in (first, second):
        watcher.refresh()
    assert [entry.alert for entry in read_alerts(run) if entry.alert == "x"] == ["x"]
    assert second.alerts(run) == []
    first.close()
    second.refresh()
    assert "x" in second.alerts(run)
    assert [entry.alert for entry in read_alerts(run) if entry.alert == "x"] == ["x"]
    second.close()
    table.close()


def test_once_shows_the_numbers_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    table = Table(run, at=10**15)
    table.steps(range(500), tokens=7)
    table.close()
    assert main(["report", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert main(["runs", "watch", f"run:{run}", "--once", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["speed"] == report["speed"]
    assert shown["goodput"]["runtime"] == report["ledger"]["goodput"]["runtime"]
    assert main(["runs", "watch", str(run), "--once"]) == 0
    assert "step 499" in capsys.readouterr().out
    assert not (run / "alerts").exists()
    assert main(["runs", "watch", str(run), "--serve", "nowhere"]) == 2
    assert "must be host:port" in capsys.readouterr().err
