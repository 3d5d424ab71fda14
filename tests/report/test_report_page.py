"""Pages and lines of a report hold nothing that a browser or a terminal would obey, whatever names and reasons are."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.cli.report.report_page import page_of
from penstock.cli.report.report_text import lines
from penstock.report.run_report import report_of
from tests.report.simulator import Loop, stacks

HOSTILE = "<script>alert(1)</script>\x1b]0;owned\x07\x1b[2J\n\u202eevil"


def test_hostile_names_are_harmless_on_every_screen() -> None:
    """Goal: names of files, functions and causes are text. Method: escapes, HTML and line ends in all of them."""
    loop = Loop().plant("user", 500, every=5)
    loop.stacks = stacks(range(4, 200, 5), f"/a/{HOSTILE}:41 {HOSTILE}")
    evidence = replace(loop.evidence(), name=HOSTILE, faults=(HOSTILE,))
    (timeline,) = evidence.timelines
    first = replace(timeline.lives[0], ended=None, died=timeline.lives[0].ended, cause=HOSTILE)
    later = int(first.died or 0) + 1_000
    second = replace(timeline.lives[0], number=1, born=later, joined=later, ended=later + 1)
    empty = replace(second, resumed=type(second.resumed)(), steps=type(second.steps)())
    evidence = replace(evidence, timelines=(replace(timeline, lives=(first, empty)),))
    report = report_of(evidence)

    page, text = page_of(report), "\n".join(lines(report))

    assert "alert(1)" in page
    assert "<script" not in page
    for screen in (page, text):
        assert not any(mark in screen for mark in ("\x1b", "\x07", "\u202e"))
    assert "http" not in page


def test_a_page_is_one_file_without_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = tmp_path / "<b>log.json"
    steps = [[number, 100 + 10 * number, 110 + 10 * number] for number in range(9)]
    phases = [["data", at, at + 8] for _, at, _ in steps]
    document = {"form": 1, "lives": [{"born": 0, "resumed": [[100, 0]], "steps": steps, "phases": phases}]}
    timeline.write_text(json.dumps(document))
    assert main(["report", "--timeline", str(timeline), "--html", str(tmp_path / "page.html")]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    page = (tmp_path / "page.html").read_text()
    assert f"<h1>{line}</h1>" in page.replace("&#x27;", "'")
    assert "<b>log" not in page
    assert "src=" not in page
    assert main(["report", "--timeline", str(timeline), "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "it is not JSON"),
        (b'{"form": 1, "lives": [{"born": NaN}]}', "NaN is not a number of JSON"),
        (b'{"form": 1, "lives": [{"born": 9007199254740992}]}', "from 0 to 2**53 - 1"),
        (b'{"form": 1, "lives": [{"born": -1}]}', "from 0 to 2**53 - 1"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b'{"form": 1, "lives": [{"born": ' + b"9" * 5000 + b"}]}", "it is not JSON"),
        (b'{"form": 1, "lives": [{"\\u001b[2J": 1}]}', "unknown key"),
    ],
)
def test_a_file_that_is_no_timeline_is_refused(
    tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(content)
    assert main(["report", "--timeline", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "\x1b" not in captured.err
    assert "Traceback" not in captured.err


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--timeline", str(tmp_path / "no.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
