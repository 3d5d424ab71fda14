"""``penstock events`` of a run: ranks and lives as one, in order, with what is damaged told."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.events import read
from penstock.report.run_events import run_events
from tests.view.run_exhibit import FAILS_AT, STEPS


def test_ranks_and_lives_are_merged_by_time_and_nothing_is_missing(
    runs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: one story. Method: a second rank (a copy) in a real run; all events are there, lives follow, moments never go back."""
    run = tmp_path / "run"
    shutil.copytree(runs_folder / "runs/slow", run)
    for path in sorted((run / "events").iterdir()):
        shutil.copy(path, path.with_name(path.name.replace("-0000", "-0001")))
    assert main(["events", str(run), "--json"]) == 0
    captured = capsys.readouterr()
    events = [json.loads(line) for line in captured.out.splitlines()]

    assert len(events) == sum(len(list(read(path))) for path in (run / "events").iterdir())
    assert [one["life"] for one in events] == sorted(one["life"] for one in events)
    ended = [one["wall_ns"] + one.get("duration_ns", 0) for one in events if "open" not in one]
    assert all(after > before - 50_000_000 for before, after in pairwise(ended))
    steps = [one["fields"]["step"] for one in events if one["kind"] == "run.step" and one["rank"] == 1]
    assert steps == [*range(FAILS_AT + 1), *range(100, STEPS)]
    assert captured.err == ""


@pytest.mark.parametrize("address", ["runs/slow", "run:runs/slow", "slow"])
def test_a_run_is_summed_up_as_one(
    runs_folder: Path, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs_folder)
    assert main(["events", address, "--kind", "run.", "--summary", "--json"]) == 0
    rows = {row["kind"]: row["count"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["run.step"] == FAILS_AT + 1 + STEPS - 100
    assert all(kind.startswith("run.") for kind in rows)


def test_a_damaged_recording_is_named_and_the_others_are_read(runs_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs_folder / "runs/slow", run)
    first = run / "events/000000-0000.pev"
    first.write_bytes(b"something else, and long enough for a header" * 4)
    second = run / "events/000001-0000.pev"
    second.write_bytes(second.read_bytes()[:-5])
    (run / "events/notes.txt").write_text("none of ours")
    events = run_events(run)

    assert {event.life for event in events} == {1}
    assert len(events.faults) == 1
    assert str(first) in events.faults[0]
    assert (events.torn_bytes > 0, events.unclosed) == (True, 1)


def test_a_run_without_recordings_prints_nothing_and_options_that_do_not_fit_are_refused(
    runs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs_folder / "runs/bare", tmp_path / "bare", ignore=shutil.ignore_patterns("events"))
    monkeypatch.chdir(runs_folder)
    assert main(["events", str(tmp_path / "bare")]) == 0
    assert capsys.readouterr().out == ""
    for words, says in (
        (["runs/slow", "--follow"], "--follow goes with a job, and runs/slow is a run"),
        (["empty"], "there is no run in empty"),
        (["run:empty"], "there is no run in run:empty"),
    ):
        assert main(["events", *words]) == 2
        assert says in capsys.readouterr().err
