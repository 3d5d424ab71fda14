"""Job files: every key, every mistake with its line, and no secret on the way."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import JobFileInvalid, UsageError
from penstock.process import Budget, JobSpec, Slots
from penstock.process.job.jobfile import change, load
from penstock.process.job.toml_lines import Places
from penstock.process.job.units import byte_count, second_count
from tests.conftest import ROOT

WHOLE = """
[job]
name = "night"
isolate = true
pressure = "drop"
segment_bytes = "64M"

[roles.data]
kind = "service"
command = "sleep '6 0'"          # split as a shell would

[roles.trainer]
command = ["bash", "-c", "echo ${RANK}"]
ranks = 4
after = ["data"]
directory = "."
environment = { MODE = "fast", STEPS = 12, HF_TOKEN = "$env", ROOT = "${BASE}/x" }
slots = { gpus = 1, memory = "8G" }
restart = "all"
restarts = 3
budget = { memory = 0 }
hang = { factor = 5, least = "1m" }
grace = "2m"
backoff = 0.5
spares = 1

[roles.eval]
kind = "task"
command = ["true"]
after = "trainer"
hang = false
"""
ENVIRONMENT = {"HF_TOKEN": "hf_secretsecretsecret", "BASE": "/data"}


def read(tmp_path: Path, text: str, *changes: str, **environment: str) -> JobSpec:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return load(path, list(map(change, changes)), environment={**ENVIRONMENT, **environment}, options={})


def test_a_file_says_all_that_a_job_is(tmp_path: Path) -> None:
    spec = read(tmp_path, WHOLE)
    data, trainer, evaluation = spec.roles
    assert (spec.name, spec.isolate, spec.pressure, spec.segment_bytes) == ("night", True, "drop", 64 << 20)
    assert (data.kind, data.command) == ("service", ["sleep", "6 0"])
    assert trainer.command == ["bash", "-c", "echo ${RANK}"]
    assert trainer.environment == {"MODE": "fast", "STEPS": "12", "ROOT": "/data/x"}
    assert (trainer.directory, trainer.after, trainer.spares) == (tmp_path, ["data"], 1)
    assert trainer.slots == Slots(gpus=1, memory_bytes=8 << 30)
    assert trainer.policy.budget == Budget(crash=3, memory=0, hang=3, preemption=1000)
    assert (trainer.policy.restart, trainer.policy.stop_grace_s, trainer.policy.backoff_s) == (
        "all",
        120,
        0.5,
    )
    assert trainer.policy.hang is not None
    assert (trainer.policy.hang.factor, trainer.policy.hang.least_s) == (5, 60)
    assert (evaluation.kind, evaluation.after, evaluation.policy.hang) == ("task", ["trainer"], None)
    assert "hf_secret" not in json.dumps(spec.to_json("x"))


def test_fields_can_be_changed_from_the_command_line(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        WHOLE,
        "roles.trainer.ranks=2",
        "roles.trainer.environment.MODE=slow and sure",
        'roles.eval.command=["false"]',
    )
    assert spec.roles[1].ranks == 2
    assert spec.roles[1].environment["MODE"] == "slow and sure"
    assert list(spec.roles[2].command) == ["false"]
    with pytest.raises(UsageError, match="PATH=VALUE"):
        change("roles.trainer.ranks")


ROLE = '[roles.a]\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "line", "place", "words"),
    [
        ("[roles.a\n", 1, "", "is not TOML"),
        ("", None, "roles", "there is none"),
        ("[job]\nnmae = 'x'\n" + ROLE, 2, "job.nmae", "did you mean name?"),
        ("[rols.a]\n", 1, "rols", "did you mean roles?"),
        (ROLE + "rank = 3\n", 3, "roles.a.rank", "did you mean ranks?"),
        (ROLE + "ranks = 0\n", 3, "roles.a.ranks", "must be 1 to 4096, got 0"),
        (ROLE + "ranks = true\n", 3, "roles.a.ranks", "must be a whole number, got True"),
        (ROLE + "ranks = 'many'\n", 3, "roles.a.ranks", "a number, `auto`, `gpu` or `cpu`"),
        (ROLE + "after = ['b']\n", 3, "roles.a.after", "names 'b'"),
        (ROLE + "after = ['a']\n", 3, "roles.a.after", "names the role itself"),
        (ROLE + "slots = { gpu = 1 }\n", 3, "roles.a.slots.gpu", "did you mean gpus?"),
        (ROLE + "slots = { memory = 'much' }\n", 3, "roles.a.slots.memory", "must be a size"),
        (ROLE + "grace = 'soon'\n", 3, "roles.a.grace", "must be a time"),
        (ROLE + "grace = -1\n", 3, "roles.a.grace", "must be 0 or more"),
        (ROLE + "hang = 3\n", 3, "roles.a.hang", "must be a table"),
        (ROLE + "hang.factor = 0.5\n", 3, "roles.a.hang.factor", "must be 1 to"),
        (ROLE + "kind = 'gnag'\n", 3, "roles.a.kind", "one of gang, service, task"),
        (ROLE + "zygote = 'maybe'\n", 3, "roles.a.zygote", "one of auto, always, never"),
        (ROLE + "directory = 'no/such'\n", 3, "roles.a.directory", "there is no directory"),
        (ROLE + "environment.X = '${NOT_SET}'\n", 3, "roles.a.environment.X", "${NOT_SET} is not set"),
        (ROLE + "environment.X = '${HF_TOKEN}'\n", 3, "roles.a.environment.X", "is a secret"),
        (
            ROLE + "environment.MY_TOKEN = 'abc'\n",
            3,
            "roles.a.environment.MY_TOKEN",
            "does not belong into a file",
        ),
        (ROLE + "environment.LOST = '$env'\n", 3, "roles.a.environment.LOST", "is not set where the job"),
        ("[roles.a]\nranks = 1\n", 1, "roles.a", "there is no command to run"),
        ("[roles.a]\ncommand = []\n", 2, "roles.a.command", "there is no command to run"),
        ("[roles.a]\ncommand = 3\n", 2, "roles.a.command", "must be a list of words"),
        ("[roles.a]\ncommand = ['no-such-thing']\n", 2, "roles.a.command", "no program"),
        ("[roles.a]\ncommand = ['no-such.py']\n", 2, "roles.a.command", "there is no file"),
        ('[roles.a]\ncommand = "echo \'x"\n', 2, "roles.a.command", "cannot be split"),
        ("roles = 3\n", 1, "roles", "must be a table"),
        ("[job]\nname = '../x'\n" + ROLE, 2, "job.name", "cannot be the name of a job"),
        (ROLE + "stdin = 7\n", 3, "roles.a.stdin", "must be 0 to 0, got 7"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_was_meant(
    tmp_path: Path, text: str, line: int | None, place: str, words: str
) -> None:
    with pytest.raises(JobFileInvalid) as caught:
        read(tmp_path, text)
    problem = caught.value
    assert (problem.line, problem.place) == (line, place)
    assert words in f"{problem} {problem.hint}"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobFileInvalid, match="cannot be read: No such file"):
        load(tmp_path / "none.toml", [], environment={}, options={})


def test_lines_of_keys_are_found() -> None:
    places = Places('a = 1\n[b.c]\n"d".e = 2 # x\n\n[[f]]\ng = { h = 1 }\n')
    assert [places.line(path) for path in ("a", "b.c", "b.c.d.e", "f.g.h", "f.x", "z")] == [
        1,
        2,
        3,
        6,
        5,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [("8G", 8 << 30), ("1.5k", 1536), ("10MB", 10**7), ("2GiB", 2 << 30), ("7", 7), ("x", None)],
)
def test_sizes(text: str, count: int | None) -> None:
    assert byte_count(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("5m", 300), ("250ms", 0.25), ("7d", 604800), ("-1", None), ("soon", None)],
)
def test_times(text: str, seconds: float | None) -> None:
    assert second_count(text) == seconds


@pytest.mark.parametrize("path", sorted((ROOT / "examples/jobs").glob("*.toml")), ids=lambda path: path.name)
def test_examples_are_whole(path: Path) -> None:
    spec: Any = load(path, [], environment={}, options={})
    assert spec.roles
