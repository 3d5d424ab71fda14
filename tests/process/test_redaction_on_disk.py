"""Secrets: hidden in all that is written for people, exact in the one file that restarts need, and gone with the job."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.process import JobSpec, Role, prepare
from penstock.process.job.suspicion import may_hold_secret
from tests.process.jobs import PATIENCE_S, Running, penstock

Run = Callable[..., Running]
KEY, PASSWORD, INHERITED = "correct-horse-1", "battery-staple-2", "trombone-paperclip-3"
CASES = json.loads((Path(__file__).parents[1] / "golden/redaction.json").read_text())
#: Says what it was given, in a traceback, and dies; in its first life it only notes what it was given.
LEAKING = """
import os, sys
given = [*sys.argv[1:], os.environ["DB_PASSWORD"], os.environ["MY_TOKEN"]]
with open(os.environ["MARKS"] + "/given", "a") as file:
    print(*given, file=file)
open(os.environ["MARKS"] + "/seen-" + os.environ["PENSTOCK_INCARNATION"], "w").write(
    " ".join(sorted(os.listdir(os.environ["PENSTOCK_JOB_DIRECTORY"])))
)
sys.exit("refused: " + " ".join(given))
"""


def written(directory: Path) -> dict[str, str]:
    """Every file of a job but its logs, which are the ranks' own words."""
    files = [path for path in directory.rglob("*") if path.is_file() and "logs" not in path.parts[-2:]]
    return {str(path.relative_to(directory)): path.read_text(errors="replace") for path in files}


def test_nothing_that_people_read_holds_a_secret_and_restarts_are_exact(run: Run, tmp_path: Path) -> None:
    """Goal: what is written is redacted when it is written, what runs is exact. Method: a job that leaks what it was given, twice."""
    script = tmp_path / "leaking.py"
    script.write_text(LEAKING)
    running = run(
        *("--restarts", "3", "--backoff", "0", "--same-failure", "2"),
        *("--", str(script), "--api-key", KEY),
        environment={"MY_TOKEN": INHERITED, "DB_PASSWORD": PASSWORD},
    )
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)

    assert (running.marks / "given").exists(), err.decode()
    lives = (running.marks / "given").read_text().splitlines()
    assert lives == [f"--api-key {KEY} {PASSWORD} {INHERITED}"] * 2
    assert "private.json" in (running.marks / "seen-1").read_text()
    files = written(running.job.directory)
    assert {"job.json", "state.json", "journal.jsonl", "incidents/0.json"} <= set(files)
    assert "private.json" not in files, "it is gone with the job"
    commands = [["jobs", "--json"], ["ps", "--json"], ["incident", "--json"], ["incident"], ["events"]]
    answers = {
        " ".join(words): penstock(running.home, *_about(words, running.job.id)).stdout for words in commands
    }
    for place, text in {**files, **answers, "terminal": err.decode().partition("refused")[0]}.items():
        for secret in (KEY, PASSWORD, INHERITED):
            assert secret not in text, place


def _about(words: list[str], job: str) -> list[str]:
    return words if words[0] == "jobs" else [words[0], job, *words[1:]]


def test_the_exact_description_is_its_owners_alone(tmp_path: Path) -> None:
    role = Role(command=["train", f"--token={KEY}"], environment={"DB_PASSWORD": PASSWORD, "LEVEL": "3"})
    job = prepare(tmp_path, JobSpec(roles=[role], directory=tmp_path))
    private = job.directory / "private.json"

    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert job.exact_description()["roles"][0]["command"] == ["train", f"--token={KEY}"]
    (shown,) = job.description()["roles"]
    assert (shown["command"], shown["environment"]) == (
        ["train", "--token=[secret]"],
        {"DB_PASSWORD": "[secret]", "LEVEL": "3"},
    )
    assert {key for key in shown if shown[key] != job.exact_description()["roles"][0][key]} == {
        "command",
        "environment",
    }


def test_a_job_without_secrets_has_one_description(tmp_path: Path) -> None:
    job = prepare(tmp_path, JobSpec(roles=[Role(command=["train", "--lr", "3e-4"])], directory=tmp_path))
    assert not (job.directory / "private.json").exists()
    assert job.exact_description() == job.description()


@pytest.mark.parametrize("text", [pair[0] for pair in CASES["hidden"]])
def test_whatever_is_hidden_is_suspected(text: str) -> None:
    assert may_hold_secret([text], {})


def test_values_of_variables_are_suspected_and_plain_commands_are_not() -> None:
    assert may_hold_secret(["train", f"--x={INHERITED}"], {"MY_TOKEN": INHERITED})
    assert not may_hold_secret(
        ["/usr/bin/python3", "train.py", "--lr", "3e-4"], {"MY_TOKEN": INHERITED, **os.environ}
    )
