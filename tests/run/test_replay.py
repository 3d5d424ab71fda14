"""Replays: one step, executed again, beside what was recorded of it; and the commands about proofs and accounts."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.errors import RepetitionImpossible
from penstock.report import ledger
from penstock.run.proof.replay import replay
from tests.run.test_proof import PINNED, lives
from tests.torch.stream import Stream


@pytest.fixture(scope="module")
def run(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("replay") / "run"
    lives("numpy", stream, out, "0:6")
    return out


def test_a_step_is_executed_again(run: Path) -> None:
    result = replay(run, 9)

    assert result.equal
    assert result.loaded == 8
    assert result.recorded.ranks[0].loss_bits == result.repeated.ranks[0].loss_bits
    assert result.recorded.batch == result.repeated.batch
    shown = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *result.peek[1:], "--json"],
        env={**os.environ, **PINNED},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(shown.stdout)["digest"] == result.recorded.batch, shlex.join(result.peek) + shown.stderr
    with pytest.raises(RepetitionImpossible, match="step 99 was not recorded, only 0 to 15"):
        replay(run, 99)


def test_commands_tell_and_their_exit_code_says_whether_it_is_equal(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["runs", "replay", str(run), "--step", "5"]) == 0
    captured = capsys.readouterr()
    assert "equal, bit for bit" in captured.out
    assert "penstock data peek" in captured.err
    monkeypatch.setenv("PLANT", "outside@5")
    assert main(["runs", "replay", str(run), "--step", "5", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["differences"][0]["kind"] == "loss"
    assert main(["runs", "prove", str(run), "--steps", "4:7"]) == 1
    assert "first: step 5, rank 0, the bits of the loss: recorded" in capsys.readouterr().out
    monkeypatch.delenv("PLANT")
    assert main(["runs", "prove", str(run), "--steps", "4:7", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["equal"]
    assert document["ratio"] > 0
    assert main(["runs", "prove", str(run), "--steps", "4-7"]) == 2
    assert "two numbers" in capsys.readouterr().err


def test_the_account_is_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", str(run), "--account", "--json"]) == 0
    accounts = json.loads(capsys.readouterr().out)
    (rank,) = accounts["ranks"]
    assert sum(rank["accounts"].values()) == rank["wall_ns"]
    assert rank["steps"]["kept"] == 16
    assert rank["steps"]["lost"] == ledger(run).ranks[0].lives[0].lost_steps > 0
    assert main(["runs", "show", str(run), "--account"]) == 0
    assert "lost steps" in capsys.readouterr().out
