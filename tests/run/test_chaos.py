"""Chaos: one run in which everything is killed again and again, equal bit for bit to a run that was left alone, with every second accounted for."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.data.recipe.document import written
from penstock.process import Job
from penstock.process.job.launch import Launch, Restarts, agent_path, prepare
from penstock.report import ledger
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from penstock.run.proof.proof import differences
from tests.conftest import ROOT
from tests.run.chaos import SAVE_EVERY, STEPS
from tests.torch.stream import Stream

RANKS = 2
SEED = 20
#: Where a rank is killed, how often that point is passed before, and which ranks pass it.
PLACES = {
    "capture": ("state.capture", 2, range(RANKS)),
    "hashed": ("state.hashed", 2, range(RANKS)),
    "written": ("state.written", 2, range(RANKS)),
    "parted": ("state.parted", 2, range(RANKS)),
    "described": ("state.described", 2, range(1)),
    "committed": ("state.committed", 2, range(1)),
    "restore": ("run.restore", 1, range(RANKS)),
    "first batch": ("run.step", 1, range(RANKS)),
    "step": ("run.step", 9, range(RANKS)),
}
#: From a birth, which the system knows in hundredths of a second.
SLACK_S = 0.02


def accidents(seed: int) -> list[dict[str, str]]:
    """What happens in each life: every place at least twice, agents, coordinators, and one full disk; in random order."""
    draw = random.Random(seed)
    planned = []
    for name in [*PLACES, *PLACES, *(["step"] * 8)]:
        point, most, ranks = PLACES[name]
        rank, visit = draw.choice(ranks), draw.randint(1, most)
        # Should the point not be reached, a later step is.
        planned.append(
            {
                "rank": str(rank),
                "points": f"{point}=kill@{visit}" + ("" if point == "run.step" else ",run.step=kill@12"),
            }
        )
    planned += [{"rank": "0", "step": str(draw.randrange(7)), "victim": "agent"} for _ in range(2)]
    for _ in range(3):
        # It takes nobody along, so somebody else has to go in the same life.
        planned.append(
            {
                "rank": "1",
                "step": str(draw.randrange(7)),
                "victim": "coordinator",
                "points": "run.step=kill@9",
            }
        )
    draw.shuffle(planned)
    return [*planned[:5], {"rank": "0", "step": "3", "full": "yes"}, *planned[5:]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A place with little room, where the system lets us make one; else a folder."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)], capture_output=True, check=False
    )
    yield place
    if mounted.returncode == 0:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def launch(
    home: Path, stream: Stream, out: Path, plan: list[dict[str, str]], place: Path
) -> tuple[Job, float]:
    """A supervised job from its start to its end; the job, and the wall time of it."""
    home.mkdir()
    (home / "plan.json").write_text(json.dumps(plan))
    (home / "recipe.json").write_bytes(msgspec.json.encode(written(stream.recipe())))
    words = [home / "recipe.json", stream.folder / "registry", out, home / "plan.json", place]
    wish = Launch(
        command=[sys.executable, str(ROOT / "tests/run/chaos.py"), *map(str, words)],
        ranks=RANKS,
        restarts=Restarts(most=100, backoff_s=0, same_failure_max=0, failure_grace_s=0.2),
        # Ours too, so that a life costs little; never the user's.
        preload=["torch", "torch._dynamo", "torch.distributed", "penstock.run", "penstock.torch"],
    )
    job = prepare(home, wish)
    began = time.time()
    done = subprocess.run(
        [agent_path(), "launch", job.directory],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return job, time.time() - began


def test_a_run_survives_everything_and_is_the_same(
    stream: Stream, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: R1 and O1 under more than thirty kills. Method: a plan from a seed kills ranks at steps, in captures, commits, restores and first
    batches, the agent and the coordinator, and fills the disk once; then every step is compared with a run that was left alone."""
    plan = accidents(SEED)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    launch(tmp_path / "quiet", stream, alone, [], tmp_path)

    job, wall_s = launch(tmp_path / "loud", stream, killed, plan, small_disk)

    assert differences(alone, killed) == []
    steps = records.read(killed)
    assert list(steps) == list(range(STEPS))
    assert all(record.parameters for whole in steps.values() for record in whole.ranks.values())
    state = job.state()
    assert state is not None
    (gang,) = state.gangs
    assert len(gang.failures) >= len(plan) >= 30
    failed = [
        entry.facts.get("reason", "")
        for entry in journal.read(killed)
        if entry.kind in ("save_failed", "end")
    ]
    assert any("space left" in reason or "too large" in reason for reason in failed), failed
    # Where the job's journal is, which divides the time between lives.
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "loud"))
    check_account(killed, wall_s)


def check_account(directory: Path, wall_s: float) -> None:
    """Every second of every rank is in one account; no life loses more than its saves under way, two at most, and what came after them."""
    accounts = ledger(directory)
    assert [rank.rank for rank in accounts.ranks] == list(range(RANKS))
    for rank in accounts.ranks:
        assert all(sum(life.accounts.values()) == life.wall for life in rank.lives)
        assert all(sum(life.parts.values()) == life.accounts["train"] for life in rank.lives)
        assert sum(rank.accounts.values()) == rank.wall <= (wall_s + SLACK_S) * 1e9
        assert min(min(*life.accounts.values(), *life.parts.values()) for life in rank.lives) >= 0
        assert rank.steps("kept") == STEPS
        assert max(life.lost_steps for life in rank.lives) <= 3 * SAVE_EVERY
        assert rank.steps("lost") > 0
        assert rank.overlaps == []
    assert accounts.repair()["observed"] == accounts.repair()["deaths"]
