"""R1: a run that was killed anywhere and resumed is bit-equal to one that was not."""

from pathlib import Path

import pytest

from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from tests.run.comparing import first_difference, program
from tests.torch.stream import Stream

#: The capture of step 10 waits until step 5 is committed, so the first kill comes after a checkpoint.
PLACES = {
    1: "run.step=kill@12,state.capture=kill@2,run.step=kill@3,run.restore=kill",
    4: "run.step=kill@12,run.restore=kill",
}


@pytest.mark.parametrize(("kind", "ranks"), [("alone", 1), ("ddp", 4)])
def test_a_killed_run_is_bit_equal(stream: Stream, tmp_path: Path, kind: str, ranks: int) -> None:
    """Goal: R1. Method: SIGKILL a rank at the start of steps, during a capture and during a restore, and compare batches, losses,
    gradient norms and parameters of every step and rank with a run that was left alone."""
    program("resumes", stream, tmp_path, kind, ranks, PLACES[ranks])

    assert first_difference(tmp_path / "whole", tmp_path / "killed") == ""
    lives = {whole.incarnation for whole in records.read(tmp_path / "killed").values()}
    assert len(lives) > 1
    starts = [entry for entry in journal.read(tmp_path / "killed") if entry.kind == "start"]
    assert [start.facts["ranks"] for start in starts] == [ranks] * (PLACES[ranks].count(",") + 2)


def test_plain_ddp_is_told_apart(stream: Stream, tmp_path: Path) -> None:
    """Goal: the comparison can fail, and `penstock.torch.ddp` is needed. Method: the same with plain DDP on four ranks, which changes
    its buckets after the first step of every life."""
    program("resumes", stream, tmp_path, "plain", 4, "run.step=kill@12")

    assert first_difference(tmp_path / "whole", tmp_path / "killed").startswith("step ")
