"""Runs under ``penstock run``: killed ranks, restarts, and a job that is told to stop."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from tests.conftest import ROOT
from tests.process.jobs import Running, wait_until
from tests.run.comparing import first_difference
from tests.torch.stream import Stream

SCRIPT = ROOT / "tests/run/script.py"
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}


@pytest.mark.parametrize(("kind", "ranks"), [("ddp", 4), ("fsdp", 2)])
def test_a_supervised_gang_is_bit_equal_after_kills(
    stream: Stream, tmp_path: Path, run: Callable[..., Running], kind: str, ranks: int
) -> None:
    """Goal: R1 under supervision. Method: two lives in which a random rank is killed at a random step, and a job without kills."""
    draw = random.Random(ranks)
    kills = ",".join(f"{draw.randrange(ranks)}:{step}" for step in (draw.randint(8, 11), draw.randint(1, 4)))
    for name, words in (("whole", ""), ("killed", kills)):
        options = ["--ranks", str(ranks), "--restarts", "3", "--"]
        command = [sys.executable, str(SCRIPT), kind, str(stream.folder), str(tmp_path / name), words]
        job = run(*options, *command, environment=ENVIRONMENT)
        assert job.launcher is not None
        output, trouble = job.launcher.communicate(timeout=120)
        assert job.launcher.returncode == 0, output + trouble

    assert first_difference(tmp_path / "whole", tmp_path / "killed") == ""
    entries = journal.read(tmp_path / "killed")
    incidents = [entry.facts for entry in entries if entry.kind == "incident"]
    assert [(facts["life"], "killed by SIGKILL" in facts["cause"]) for facts in incidents] == [
        (0, True),
        (1, True),
    ]
    starts = [entry.facts for entry in entries if entry.kind == "start"]
    assert [(facts["launcher"], facts["life"]) for facts in starts] == [
        ("penstock", life) for life in range(3)
    ]


def test_torchrun_starts_the_same_program(stream: Stream, tmp_path: Path) -> None:
    """Goal: it works unchanged under torchrun, which names no job. Method: the same script, two ranks."""
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", str(SCRIPT), "ddp"]
    done = subprocess.run(
        [sys.executable, *command, str(stream.folder), str(tmp_path / "run"), ""],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (start,) = (entry.facts for entry in journal.read(tmp_path / "run") if entry.kind == "start")
    assert (start["launcher"], start["ranks"], start["lanes"]) == ("torchrun", 2, 2)
    assert list(records.read(tmp_path / "run")) == list(range(12))


def test_a_job_that_is_stopped_saves_first(
    stream: Stream, tmp_path: Path, run: Callable[..., Running]
) -> None:
    """Goal: save now, leave by. Method: SIGTERM to the launcher of an endless run; every rank leaves after the same step, which is committed."""
    program = (
        "import sys; from pathlib import Path; from penstock.run import Policy; from tests.run.programs import *; "
        f"train(Stream(Path({str(stream.folder)!r})), Path({str(tmp_path / 'run')!r}), Policy(save_every=10**6), wrap=WRAPS['ddp'])"
    )
    job = run("--ranks", "2", "--", sys.executable, "-c", program, environment=ENVIRONMENT)
    assert job.launcher is not None
    wait_until(lambda: any((tmp_path / "run/records").glob("*.rec")), "the run has begun", timeout_s=60)
    wait_until(
        lambda: all(path.stat().st_size > 80 * 8 for path in (tmp_path / "run/records").iterdir()),
        "it has trained some steps",
        timeout_s=60,
    )
    job.launcher.send_signal(signal.SIGTERM)
    job.launcher.communicate(timeout=60)
    end = journal.read(tmp_path / "run")[-1]
    assert (end.kind, end.facts) == ("end", {"how": "left", "committed": True})
    commits = [entry.step for entry in journal.read(tmp_path / "run") if entry.kind == "commit"]
    assert commits[-1] == end.step
