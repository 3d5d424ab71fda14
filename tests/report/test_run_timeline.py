"""The timeline of runs that were killed: O1 with and without a supervisor, and damage that is said (O2, O7)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.cli.report.report_text import ledger_lines
from penstock.observe.steps import Anchor
from penstock.report import ledger
from penstock.report.accounts.clock_map import WALL, ClockMap
from penstock.report.accounts.ledger import Ledger, ledger_from
from penstock.report.accounts.run_timeline import run_timeline
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from tests.conftest import ROOT
from tests.process import jobs
from tests.process.jobs import Running
from tests.report.mortal import KILLED_AT, SAVE_EVERY, STEP_S, STEPS
from tests.report.step_rows import row_of, writer_of
from tests.torch.stream import Stream, make_stream

SCRIPT = ROOT / "tests/report/mortal.py"
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(jobs.start(tmp_path / "home", *words, environment=ENVIRONMENT))
        return started[-1]

    yield begin
    for job in started:
        jobs.end(job)


def check_sums(accounts: Ledger) -> None:
    """O1: disjoint, exact, nothing below zero."""
    for rank in accounts.ranks:
        assert rank.overlaps == []
        for life in rank.lives:
            assert sum(life.accounts.values()) == life.wall
            assert sum(life.parts.values()) == life.accounts["train"]
            assert min(*life.accounts.values(), *life.parts.values()) >= 0


def test_a_supervised_death_is_divided_and_has_its_cost(
    stream: Stream, tmp_path: Path, start_job: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: O1 through a kill, MTTR by part. Method: a real job whose rank kills itself in the middle of a step."""
    run = tmp_path / "run"
    job = start_job(
        "--ranks",
        "1",
        "--restarts",
        "2",
        "--zygote",
        "never",
        "--",
        sys.executable,
        str(SCRIPT),
        str(stream.folder),
        str(run),
    )
    assert job.launcher is not None
    output, trouble = job.launcher.communicate(timeout=120)
    assert job.launcher.returncode == 0, output + trouble
    # The run says where its job is: whoever reads it may have another home.
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "elsewhere"))

    accounts = ledger(run)

    check_sums(accounts)
    first, second = accounts.ranks[0].lives
    lost = KILLED_AT - SAVE_EVERY
    assert (first.kept_steps, first.lost_steps, first.torn_steps) == (SAVE_EVERY, lost, 1)
    assert (second.kept_steps, second.lost_steps, second.torn_steps) == (STEPS - SAVE_EVERY, 0, 0)
    (death,) = accounts.incidents
    assert (death.kind, death.lost_steps) == ("death", lost)
    assert "killed by SIGKILL" in death.cause
    assert death.accounts["lost"] == first.accounts["lost"] >= lost * STEP_S * 1e9
    # The step that the kill tore lasted eleven pauses.
    assert first.accounts["torn"] >= 11 * STEP_S * 1e9
    assert first.accounts["unmeasured"] == second.accounts["unmeasured"] == 0
    # The job was asked for before its agent ordered the first life; a life after a death waits for nobody.
    assert first.accounts["queue"] > 0
    assert second.accounts["queue"] == 0
    assert accounts.goodput()["scheduling"] == (accounts.wall - first.accounts["queue"]) / accounts.wall
    assert all(second.accounts[name] > 0 for name in ("start", "restore", "train", "finish"))
    died = (
        first.first
        + first.wall
        - first.accounts["backoff"]
        - first.accounts["down"]
        - first.accounts["drain"]
    )
    seen = int(run.with_suffix(".dead").read_text())
    assert 0 <= died - seen < 1e9
    repair = accounts.repair()
    assert (repair["deaths"], repair["observed"]) == (1, 1)
    assert isinstance(repair["mean_ns"], dict)
    assert set(repair["mean_ns"]) >= {"torn", "start", "restore", "lost"}
    assert sum(repair["mean_ns"].values()) == death.cost


def test_a_death_that_nobody_watched_is_not_observed(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: O7 between lives. Method: the same program, started twice by hand."""
    run = tmp_path / "run"
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    for expected in (-9, 0):
        command = [sys.executable, str(SCRIPT), str(stream.folder), str(run)]
        done = subprocess.run(
            command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == expected, done.stderr

    accounts = ledger(run)

    check_sums(accounts)
    first = accounts.ranks[0].lives[0]
    assert first.accounts["unmeasured"] > 0
    assert first.accounts["down"] == 0
    assert accounts.incidents[0].cause == "not observed"
    assert accounts.repair()["mean_ns"] == "not observed"
    assert main(["report", str(run), "--json"]) == 0
    before = capsys.readouterr().out
    assert main(["report", str(run), "--json"]) == 0
    # O4: the same files, the same bytes.
    assert capsys.readouterr().out == before
    assert json.loads(before)["ledger"] == json.loads(json.dumps(accounts.to_json()))
    check_damage(run)


def check_damage(run: Path) -> None:
    """A flipped byte in a block of rows is said with its place, and the ledger still sums."""
    whole = ledger(run)
    for path in sorted((run / "steps").iterdir()):
        if path.suffix in (".pst", ".tail"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 0xFF
            path.write_bytes(content)
    report = report_of(evidence_of(run))
    check_sums(report.ledger)
    assert report.faults
    assert any(" at byte " in fault for fault in report.faults)
    assert len(report.ledger.ranks[0].lives) == len(whole.ranks[0].lives) == 2


def test_a_wall_clock_that_was_set_moves_nothing() -> None:
    """Goal: a set clock shifts no moment by more than it must, and is said. Method: anchors a minute apart, an hour between their walls."""
    second = 10**9
    boot = "b" * 36
    anchors = [
        Anchor(0, 0, boot, 100 * second, 90 * second, 1_000_000 * second),
        Anchor(0, 0, boot, 160 * second, 150 * second, 1_003_660 * second),
    ]
    clocks = ClockMap(anchors)
    assert clocks.at(1_000_010.0) == (boot, 110 * second)
    assert clocks.at(1_003_661.0) == (boot, 161 * second)
    assert clocks.steps_of_the_wall_clock() == [
        "the wall clock of rank 0 was set by +3600.0 s in life 0; no account has it"
    ]
    assert ClockMap([]).at(2.5) == (WALL, 2_500_000_000)


def test_a_host_that_slept_has_it_as_an_account() -> None:
    second = 10**9
    anchors = [
        Anchor(0, 0, "b", 100 * second, 100 * second, 1000 * second),
        Anchor(0, 0, "b", 400 * second, 160 * second, 1300 * second),
    ]
    assert ClockMap(anchors).suspends(0, 0) == [(160 * second, 400 * second)]


def test_a_gap_between_two_boots_is_no_account_and_is_estimated_by_wall_clocks(tmp_path: Path) -> None:
    """Goal: clocks, O1. Method: two lives whose boots began at different times, 100 s apart by their wall clocks."""
    second = 10**9
    for number, boot_id, boot, wall in ((0, "a", 500, 7000), (1, "b", 20, 7110)):
        writer = writer_of(tmp_path, number, boot_id=boot_id)
        writer.anchor(boot * second, boot * second, wall * second)
        for step in range(10 * number, 10 * number + 10):
            begin = (boot + step - 10 * number) * second
            values = {"step": step, "begin": begin, "end": begin + second, "host.user": second}
            writer.row(row_of(values))
        writer.close()
    accounts = ledger_from(run_timeline(tmp_path, tmp_path).ranks)
    check_sums(accounts)
    (rank,) = accounts.ranks
    assert rank.wall == 20 * second
    assert rank.clock_changes == [{"life": 0, "gap_estimate_ns": 100 * second}]
    assert accounts.incidents[0].gap_estimate == 100 * second
    assert "after life 0 the clock began anew: about 100 s are in no account (by wall clocks)" in "\n".join(
        ledger_lines(accounts)
    )


@pytest.mark.parametrize("words", [["report"], ["runs", "show", "--account"]])
def test_a_directory_that_is_no_run_is_refused(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([words[0], *words[1:2], str(tmp_path), *words[2:]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there is no run in" in captured.err
