"""Alerts are written down and told; the command that is told gets data, has a limit, and harms nobody."""

import json
import os
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.report.watch.alert_book import AlertBook, read_alerts, run_command
from penstock.report.watch.alert_rules import AlertRule, AlertRules
from penstock.report.watch.alert_state import AlertEvent
from tests.process.jobs import is_alive, wait_until

HOSTILE = "x'; touch /tmp/no; $(id) `id` \x1b[31m\n\"\\"
RULE = AlertRule(name=HOSTILE, kind="threshold", signal="scalar.loss", above=1)


def event(state: str = "firing") -> AlertEvent:
    return AlertEvent(state, RULE, 3, 2, 41, float("inf"), 1.5)


def test_the_command_gets_the_alert_as_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: no shell, no argument made of a name. Method: a command that writes its words and its standard input into files."""
    script = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(repr(sys.argv[1:]).encode() + b'\\0' + sys.stdin.buffer.read())"
    command = (sys.executable, "-c", script, str(tmp_path / "told"), "; rm -rf *")
    book = AlertBook(tmp_path / "run", f"run {HOSTILE}", AlertRules((RULE,), command))
    (tmp_path / "run").mkdir()
    book.tell(event())
    book.close()
    words, _, document = (tmp_path / "told").read_bytes().partition(b"\0")
    assert words.decode() == repr([str(tmp_path / "told"), "; rm -rf *"])
    alert = json.loads(document)
    assert (alert["alert"], alert["rank"], alert["life"], alert["step"]) == (HOSTILE, 3, 2, 41)
    assert alert["run"] == f"run {HOSTILE}"
    (entry,) = read_alerts(tmp_path / "run")
    assert (entry.alert, entry.state) == (HOSTILE, "firing")
    told = capfd.readouterr().err
    assert "\x1b" not in told
    assert told.count("\n") == 1


def test_a_command_that_hangs_is_ended_with_all_that_it_started_and_reported(tmp_path: Path) -> None:
    """Goal: a hanging command costs its limit and no more. Method: one that ignores SIGTERM and has a child that does so too."""
    script = "trap '' TERM; (trap '' TERM; echo $BASHPID > child; exec sleep 600) & echo $$ > parent; wait"
    command = ("bash", "-c", f"cd {tmp_path}; {script}")
    (tmp_path / "run").mkdir()
    book = AlertBook(tmp_path / "run", "run", AlertRules((RULE,), command, timeout_s=1))
    book.tell(event())
    book.close()
    states = [entry.state for entry in read_alerts(tmp_path / "run")]
    assert states == ["firing", "command failed"]
    assert "longer than 1 s" in read_alerts(tmp_path / "run")[1].text
    pids = [int((tmp_path / name).read_text()) for name in ("parent", "child")]
    wait_until(lambda: not any(map(is_alive, pids)), "nothing of it is left")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/nonexistent/program",), "could not be started"),
        (("bash", "-c", "echo why >&2; exit 3"), "failed with exit code 3: why"),
        (("bash", "-c", "exec <&-; exit 0"), ""),
    ],
)
def test_a_command_that_fails_says_why(command: tuple[str, ...], words: str) -> None:
    answer = run_command(command, b"{}" * 100_000, 20.0)
    assert words in answer
    assert bool(answer) == bool(words)


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    """Goal: what a kill leaves is passed over. Method: half a line at the end; the next alert begins on a line of its own."""
    (tmp_path / "run").mkdir()
    book = AlertBook(tmp_path / "run", "run", AlertRules((RULE,)))
    book.tell(event())
    with book.path.open("ab") as file:
        file.write(b'{"at": 3, "stat')
    book.tell(event("cleared"))
    assert [entry.state for entry in read_alerts(tmp_path / "run")] == ["firing", "cleared"]
    again = AlertBook(tmp_path / "run", "run", AlertRules((RULE,)))
    assert again.firing_before() == {HOSTILE: False}
    assert again.fired == {HOSTILE: 1}


def test_a_disk_that_takes_nothing_is_said_once_and_alerts_are_told_all_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.write_text("no directory")
    book = AlertBook(run, "run", AlertRules((RULE,)))
    book.tell(event())
    book.tell(event("cleared"))
    told = capfd.readouterr().err
    assert told.count("not written down") == 1
    assert told.count("penstock: alert") == 3


def test_alerts_are_lines_of_the_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: whoever asks what happened sees alerts too, between other entries."""
    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    AlertBook(run, "run", AlertRules((RULE,))).tell(event())
    capsys.readouterr()
    assert main(["runs", "show", str(run), "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["kind"], line["life"], line["rank"], line["step"]) == ("alert", 2, 3, 41)
    assert line["facts"]["alert"] == HOSTILE
    assert os.path.basename(line["facts"]["run"]) == "run"
