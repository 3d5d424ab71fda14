"""Directories of runs in which anything may lie: every command ends with an answer or a sentence, and what was planted beside the rows changes no number."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.observe.steps import read_steps
from penstock.observe.steps.compile_file import CompileSpan
from penstock.report import ledger
from penstock.report.diagnosis.compile_time import less_compiling
from penstock.report.diagnosis.step_view import steps_of
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.run.directory import About, RunDirectory
from tests.report.tables import Table

STEPS, TOOK_NS = 50, 10**7
#: As many compilations as a file of notes holds, nearly.
MANY = 40_000
#: Facts that no run of ours writes.
STRANGE = {"launcher": "penstock", "job": "x", "life": 0, "job_directory": 5, "pid": [1]}


def made(run: Path) -> Path:
    """A run of one rank that ended in order, with a journal."""
    table = Table(run)
    table.steps(range(STEPS), TOOK_NS)
    table.close()
    RunDirectory(run).describe(About(1, 1.7e9, 3, False, {}, "b3:0", "registry", "checkpoints"))
    write_journal(
        run, [{"kind": "start", "at": 1.7e9}, {"kind": "end", "at": 1.7e9 + 1, "facts": {"how": "done"}}]
    )
    return run


def write_journal(run: Path, entries: list[dict[str, object]]) -> None:
    """By hand."""
    (run / "journal").mkdir(exist_ok=True)
    lines = [json.dumps({"incarnation": 0, **entry}) + "\n" for entry in entries]
    (run / "journal" / "000000-0000.jsonl").write_text("".join(lines))


def spans_of(run: Path, count: int) -> list[tuple[int, int]]:
    """Compilations that fill half of the time of the steps, apart from each other."""
    (rows,) = read_steps(run)
    first, last = int(rows.columns["begin"][0]), int(rows.columns["end"][-1])
    length = (last - first) // (2 * count)
    return [(first + 2 * number * length, first + (2 * number + 1) * length) for number in range(count)]


def note(run: Path, spans: list[tuple[int, int]]) -> None:
    """Write them as notes of a compiler."""
    lines = [json.dumps({"begin": begin, "end": end}) + "\n" for begin, end in spans]
    (run / "steps" / "000000-0000.compiles").write_text("".join(lines))


def renamed(run: Path, name: str) -> None:
    """A table that says to be of somebody else."""
    table = next((run / "steps").glob("*.pst"))
    (run / "steps" / name).write_bytes(table.read_bytes())


HOSTILE: dict[str, Callable[[Path], object]] = {
    "notes beyond 64 bits": lambda run: note(run, [(1, 10**30)]),
    "notes that are a folder": lambda run: (run / "steps" / "000000-0000.compiles").mkdir(),
    "stacks that are a folder": lambda run: (run / "steps" / "000000-0000-7.stacks").mkdir(),
    "a table that is a folder": lambda run: (run / "steps" / "000001-0000-0.pst").mkdir(),
    "a life beyond 64 bits": lambda run: renamed(run, f"{10**30}-0000-0.pst"),
    "a rank beyond 64 bits": lambda run: renamed(run, f"000000-{10**30}-0.pst"),
    "facts of other types": lambda run: write_journal(
        run, [{"kind": "start", "at": 1.7e9, "facts": STRANGE}]
    ),
    "entries without facts": lambda run: write_journal(
        run,
        [{"kind": kind, "at": 1.7e9} for kind in ("start", "commit", "verdict", "weights", "phase", "end")],
    ),
    "moments of no calendar": lambda run: write_journal(
        run, [{"kind": kind, "at": 1e300, "step": -7} for kind in ("start", "commit", "end")]
    ),
}
COMMANDS = {
    "report": ["report", "RUN"],
    "json": ["report", "RUN", "--json"],
    "ledger": ["runs", "show", "RUN", "--account"],
    "story": ["runs", "show", "RUN"],
    "list": ["runs", "list", "."],
    "top": ["top", "RUN", "--once"],
    "watch": ["runs", "watch", "RUN", "--once"],
    "parquet": ["runs", "export", "RUN", "--to", "parquet:rows"],
    "perfetto": ["runs", "export", "RUN", "--to", "perfetto:trace.pftrace"],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_command_ends_in_a_traceback_and_rows_are_reported_all_the_same(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what lies beside the rows spoils nothing. Method: one strange thing at a time, and every command that reads a run."""
    run = made(tmp_path / "run")
    expected = report_of(evidence_of(run)).to_json()
    HOSTILE[name](run)
    monkeypatch.chdir(tmp_path)
    for command, words in COMMANDS.items():
        code = main([word.replace("RUN", "run") for word in words])
        said = capfd.readouterr()
        # A trace has no place for moments of a table without a wall clock, and says so.
        assert code == 0 or (command, code) == ("perfetto", 1), said.err
        assert "Traceback" not in said.err
        if command == "json":
            answer = json.loads(said.out)
            assert answer["speed"] == expected["speed"]
            assert answer["breakdown"] == expected["breakdown"]
    if "folder" in name:
        assert any("is a directory" in fault.lower() for fault in answer["faults"]), answer["faults"]


def test_compilations_that_lie_outside_of_their_life_are_in_no_step_and_said(tmp_path: Path) -> None:
    """Goal: a wall clock that was set between a compilation and its note takes nothing from steps. Method: notes an hour late, and one without an end."""
    run = made(tmp_path / "run")
    expected = report_of(evidence_of(run)).to_json()
    inside = spans_of(run, 2)
    note(run, [(begin + 3600 * 10**9, end + 3600 * 10**9) for begin, end in inside] + [(1, 2**62)])
    answer = report_of(evidence_of(run)).to_json()
    assert answer["breakdown"] == expected["breakdown"]
    assert answer["diagnosis"] == expected["diagnosis"]
    assert answer["faults"] == [
        "3 compilations are noted outside of the life that they are of; no account has them"
    ]
    note(run, inside)
    assert report_of(evidence_of(run)).faults == ()


def test_very_many_compilations_are_accounted_exactly(tmp_path: Path) -> None:
    """Goal: O1 within seconds, where it took minutes. Method: as many notes as fit; ten times as many take ten times as long, so this ends."""
    run = made(tmp_path / "run")
    spans = spans_of(run, MANY)
    note(run, spans)
    (rank,) = ledger(run).ranks
    assert rank.accounts["compile"] == sum(end - begin for begin, end in spans)
    assert sum(rank.accounts.values()) == rank.wall
    assert report_of(evidence_of(run)).diagnosis.causes[0].kind == "compiling"


@pytest.mark.parametrize("count", [1, 3, 17, 400])
def test_what_was_compiled_in_a_step_is_taken_from_it(tmp_path: Path, count: int) -> None:
    """Method: against looking at every step and every stretch."""
    run = made(tmp_path / "run")
    (timeline,) = evidence_of(run).timelines
    view = steps_of(timeline)
    assert view is not None
    spans = [CompileSpan(0, 0, begin, end) for begin, end in spans_of(run, count)]
    taken = view.columns["host.user"] - less_compiling(view, spans).columns["host.user"]
    rows = zip(view.columns["begin"].tolist(), view.columns["end"].tolist(), strict=True)
    assert taken.tolist() == [
        sum(max(0, min(end, span.end) - max(begin, span.begin)) for span in spans) for begin, end in rows
    ]
