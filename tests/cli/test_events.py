"""``penstock events``: readable for people, exact for programs, honest about losses."""

import json
from pathlib import Path

import pytest

from penstock import events
from penstock.cli.main import main


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    with events.recording(tmp_path / "one.pev") as path:
        for step in range(3):
            with events.span("step", step=step), events.span("data.wait"):
                events.record("loss", value=0.5)
    return path


def test_json_is_one_event_per_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(recording), "--json"]) == 0

    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["kind"] for e in records] == ["loss", "data.wait", "step"] * 3
    assert [e["fields"] for e in records if e["kind"] == "step"] == [{"step": 0}, {"step": 1}, {"step": 2}]
    assert all(e["duration_ns"] > 0 for e in records if e["kind"] != "loss")


def test_kind_chooses_by_prefix(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(recording), "--kind", "data", "--json"]) == 0
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == ["data.wait"] * 3


def test_summary_counts_per_kind(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(recording), "--summary", "--json"]) == 0
    rows = {row["kind"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {kind: row["count"] for kind, row in rows.items()} == {"step": 3, "data.wait": 3, "loss": 3}
    assert rows["loss"]["total_ns"] is None
    assert rows["step"]["total_ns"] >= rows["data.wait"]["total_ns"] >= rows["data.wait"]["max_ns"]


def test_a_torn_file_is_read_up_to_the_tear_and_says_so(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.write_bytes(recording.read_bytes()[:-5])
    assert main(["events", str(recording)]) == 0
    captured = capsys.readouterr()
    assert "step=2" in captured.out
    assert "are torn or damaged" in captured.err


def test_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("nothing of the kind, and long enough for a header")
    assert main(["events", str(tmp_path / "notes.txt")]) == 2
    assert "is not an event file" in capsys.readouterr().err
