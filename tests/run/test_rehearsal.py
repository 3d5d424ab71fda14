"""Rehearsals: steps of a run are executed again beside it, with its decisions, and nothing of it changes."""

import math
from pathlib import Path

import pytest

from penstock import errors
from penstock.run import Policy, Spike, journal, records
from penstock.run.rehearsal import VARIABLE, Rehearsal, rehearsal_of
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
        stop_at=14,
        digest_every=1,
        non_finite="skip",
        spike=Spike(k=20, window=8, least=4, then="rollback", back=1),
    )
    train(make(stream, tmp_path / "run", policy), bad={6: math.nan, 10: 1e6})
    before = content(tmp_path / "run")
    again = Rehearsal(tmp_path / "again", first, executed[-1] + 1)
    for name, value in again.to_variable().items():
        monkeypatch.setenv(name, value)

    _, done = train(make(stream, tmp_path / "run", policy), bad={6: math.nan})

    assert done == executed
    assert content(tmp_path / "run") == before
    original, rehearsed = records.read(tmp_path / "run"), records.read(tmp_path / "again")
    assert {step: repr(each.ranks) for step, each in rehearsed.items()} == {
        step: repr(original[step].ranks) for step in executed
    }
    assert [entry.kind for entry in journal.read(tmp_path / "again")][:2] == ["start", "restore"]


def test_what_cannot_be_rehearsed_is_told(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("", "[]", '{"into": "x", "first": 3}', '{"into": "x", "first": 3, "stop": 3}'):
        with pytest.raises(errors.UsageError, match=VARIABLE):
            rehearsal_of({VARIABLE: text})
    monkeypatch.setenv(VARIABLE, Rehearsal(tmp_path / "again", 3, 5).to_variable()[VARIABLE])
    with pytest.raises(errors.CheckpointUnknown, match="at or before step 3"):
        train(make(stream, tmp_path / "nothing", Policy()))
