"""A run that is followed has the figures of its report, whatever happened to it (O4), and reads what is new alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.observe.steps.columns import FOLDER
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.report.watch.run_watch import RunWatch, Snapshot
from tests.conftest import ROOT
from tests.process.jobs import wait_until
from tests.report.mortal import KILLED_AT
from tests.report.tables import Table
from tests.torch.stream import Stream, make_stream

H100 = {"device": "NVIDIA H100 80GB HBM3"}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A directory that is one of a run."""
    path = tmp_path / "run"
    (path / "journal").mkdir(parents=True)
    return path


def check_equal(snapshot: Snapshot, run: Path) -> None:
    """Its figures are those of the report, to the last digit."""
    report = report_of(evidence_of(run)).to_json()
    assert snapshot.figures.speed == report["speed"]
    assert snapshot.figures.mfu == report["mfu"]
    assert snapshot.figures.goodput["runtime"] == report["ledger"]["goodput"]["runtime"]
    assert sum(count for count, _ in snapshot.figures.incidents.values()) == len(
        report["ledger"]["incidents"]
    )


def at_rest(watch: RunWatch) -> Snapshot:
    """After as many refreshes as it takes without anything new."""
    for _ in range(3):
        watch.refresh()
    return watch.refresh(at_once=True)


def test_figures_are_those_of_the_report_while_rows_come(run: Path) -> None:
    """Goal: O4, one definition. Method: three ranks of different speed, rows in portions that fill blocks, FLOPs that come late; after every portion
    the figures equal a report that reads everything."""
    tables = [Table(run, 0, rank, at=10**15) for rank in range(3)]
    (run / FOLDER / "000000-0000.flops.json").write_text(json.dumps(H100))
    watch = RunWatch(run)
    for first in range(0, 9000, 1500):
        for rank, table in enumerate(tables):
            table.steps(
                range(first, first + 1500 - rank * 11 * (first == 7500)),
                10**7 + rank * 10**5,
                tokens=1000 + rank,
                flops=4 * 10**12,
            )
            table.flush()
        check_equal(watch.refresh(at_once=True), run)
    snapshot = watch.refresh(at_once=True)
    assert snapshot.figures.speed["steps"] == 9000 - 22
    assert [state.step for state in snapshot.ranks] == [8999, 8988, 8977]
    assert isinstance(snapshot.figures.mfu["value"], float)
    for table in tables:
        table.close()
    check_equal(at_rest(watch), run)


def test_steps_that_are_executed_again_count_once(run: Path) -> None:
    """Goal: O4 through returns and deaths. Method: a return inside of a table, a table left as a kill leaves it, a second life that goes on before its end,
    and then fewer ranks; the figures equal the report's each time."""
    tables = [Table(run, 0, rank, at=10**15) for rank in range(2)]
    watch = RunWatch(run)
    for portion in (range(300), range(100, 400)):
        for table in tables:
            table.steps(portion, tokens=10)
            table.flush()
        check_equal(watch.refresh(at_once=True), run)
    later = [Table(run, 1, rank, at=tables[0].at + 10**9) for rank in range(2)]
    for table in later:
        table.steps(range(380, 500), tokens=10)
        table.flush()
    check_equal(at_rest(watch), run)
    last = Table(run, 2, 0, at=later[0].at + 10**9)
    last.steps(range(490, 600), tokens=10)
    last.flush()
    snapshot = at_rest(watch)
    check_equal(snapshot, run)
    assert [state.is_over for state in snapshot.ranks] == [False, True]
    for table in (*tables, *later, last):
        table.close()


def test_a_real_run_that_is_killed_and_goes_on_has_the_figures_of_its_report(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the same with everything that a run writes. Method: a real run that kills itself, and a second life; watched all the time."""
    out = tmp_path / "run"
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    watch = RunWatch(out)
    codes = []
    for _ in range(2):
        program = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/report/mortal.py"), str(stream.folder), str(out)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
        )

        def has_ended(program: "subprocess.Popen[bytes]" = program) -> bool:
            watch.refresh()
            return program.poll() is not None

        wait_until(has_ended, "the life is over", timeout_s=60)
        codes.append(program.returncode)
    assert codes == [-9, 0], KILLED_AT
    snapshot = at_rest(watch)
    check_equal(snapshot, out)
    assert snapshot.figures.lives == 2
    assert not snapshot.is_running


def test_torn_and_flipped_rows_are_counted_and_cost_only_themselves(run: Path) -> None:
    """Goal: damage is said, the rest is seen. Method: a flipped bit and a torn end in a tail, then more rows in another file."""
    table = Table(run, at=10**15)
    table.steps(range(200), tokens=1)
    table.flush()
    tail = run / FOLDER / f"{table.stem}-0.tail"
    data = bytearray(tail.read_bytes())
    data[len(data) // 2] ^= 1
    tail.write_bytes(data[:-5])
    watch = RunWatch(run)
    snapshot = at_rest(watch)
    assert snapshot.ranks[0].faults == 1
    assert snapshot.ranks[0].step in (198, 199)
    check_equal(snapshot, run)
    tail.write_bytes(b"")
    assert at_rest(watch).ranks[0].step in (198, 199)
    table.close()


def test_a_directory_that_is_deleted_while_it_is_watched_is_said(run: Path) -> None:
    table = Table(run, at=10**15)
    table.steps(range(100))
    table.flush()
    watch = RunWatch(run)
    assert not at_rest(watch).is_gone
    shutil.rmtree(run)
    assert watch.refresh(at_once=True).is_gone
    table.close()


def test_steps_that_lie_too_far_apart_are_not_summed(run: Path) -> None:
    """Goal: bounded memory (O5). Method: a step number that no run has; nothing is told, and nothing is allocated."""
    table = Table(run, at=10**15)
    table.steps([0, 1, 1 << 50, (1 << 50) + 1])
    table.flush()
    assert at_rest(RunWatch(run)).figures.speed.get("steps", 0) <= 2
    table.close()


def test_another_run_in_the_place_of_one_that_was_deleted_is_followed(run: Path) -> None:
    """Goal: nothing of an old run is told of a new one. Method: the directory is deleted and made again with fewer steps."""
    watch = RunWatch(run)
    for count in (300, 150):
        table = Table(run, at=10**15)
        table.steps(range(count), tokens=1)
        table.flush()
        snapshot = at_rest(watch)
        check_equal(snapshot, run)
        assert (snapshot.ranks[0].step, snapshot.figures.speed["steps"]) == (count - 1, count)
        table.close()
        shutil.rmtree(run)
        assert watch.refresh().is_gone
        (run / "journal").mkdir(parents=True)
