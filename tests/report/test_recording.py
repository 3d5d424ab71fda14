"""The same file gives the same numbers in the terminal and in the browser."""

import json
from pathlib import Path

import pytest

from penstock import events
from penstock.cli.main import main
from penstock.events.columns import read_table
from penstock.report.recording import summaries_of
from penstock.view.web.content.recordings import describe_recording


def test_terminal_and_browser_give_the_same_quantiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.pev"
    with events.recording(file):
        for number in range(7):
            with events.span("step", number=number):
                sum(range(number * 20_000))
        events.record("tick")
    shown = ("kind", "count", "total_ns", "p50_ns", "p99_ns", "max_ns")
    computed = [{name: getattr(kind, name) for name in shown} for kind in summaries_of([read_table(file)])]
    assert main(["events", str(file), "--summary", "--json"]) == 0
    terminal = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    browser = [
        {name: kind[name] for name in shown} for kind in describe_recording(events.read(file))["kinds"]
    ]
    assert terminal == browser == computed
    assert [kind["kind"] for kind in terminal] == ["step", "tick"]
    durations = sorted(
        event.duration_ns for event in events.read(file) if event.kind == "step" and event.duration_ns
    )
    assert terminal[0]["p50_ns"] == durations[3]
