"""Repeating: steps of a run are executed again beside it, with its decisions, and nothing of it changes."""

import math
from pathlib import Path

import msgspec
import pytest

import penstock as ps
from penstock import errors
from penstock.run import Policy, Spike
from penstock.run.directory import RunDirectory
from penstock.run.journal import step_records as records
from penstock.run.proof import repetition
from penstock.run.proof.repeat_mode import VARIABLE, Repeat, given
from tests.run.small import make, train
from tests.torch.stream import Stream


def content(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("first", "executed"), [(5, [4, 5, 6, 7, 8]), (11, [8, 11, 12]), (0, [0, 1, 2])])
def test_steps_are_executed_again_beside_the_run(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, executed: list[int]
) -> None:
    """Goal: the seam of proofs and replays. Method: a run with a skip and a rollback; any steps of it again, bit by bit."""
    policy = Policy(
        save_every=4,
        keep=ps.Keep(every=1),
        stop_at=14,
        digest_every=1,
        non_finite="skip",
        spike=Spike(k=20, window=8, least=4, then="rollback", back=1),
    )
    train(make(stream, tmp_path / "run", policy), bad={6: math.nan, 10: 1e6})
    before = content(tmp_path / "run")
    recorded, place = repetition.look(tmp_path / "run"), RunDirectory(tmp_path / "again")
    repetition.furnish(recorded, place, recorded.nearest(first))
    wanted = Repeat(str((tmp_path / "run").resolve()), str(place.path), executed[-1] + 1, (first,))
    (tmp_path / "repeat.json").write_bytes(msgspec.json.encode(wanted))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "repeat.json"))

    with pytest.raises(SystemExit) as left:
        train(make(stream, tmp_path / "run", policy), bad={6: math.nan})

    assert left.value.code == 0
    assert content(tmp_path / "run") == before
    original, again = records.read(tmp_path / "run"), records.read(tmp_path / "again")
    assert list(again) == executed
    assert {step: repr(whole.ranks) for step, whole in again.items()} == {
        step: repr(original[step].ranks) for step in executed
    }


def test_what_cannot_be_repeated_is_told(tmp_path: Path) -> None:
    assert given({}) is None
    with pytest.raises(errors.RepetitionFailed, match="cannot be read"):
        given({VARIABLE: str(tmp_path / "none")})
    (tmp_path / "bad").write_text("[]")
    with pytest.raises(errors.RepetitionFailed, match="cannot be read"):
        given({VARIABLE: str(tmp_path / "bad")})
