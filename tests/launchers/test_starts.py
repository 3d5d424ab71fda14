"""A second start by the same command goes on from the newest commit, whoever the launcher is. The whole matrix is ``python -m benchmarks launchers``."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.launchers.matrix import LAUNCHERS, LOOPS, OF_SLURM, Cell, How, outcomes
from tests.launchers.slurm import slurm
from tests.torch.stream import Stream, make_stream

#: One with a name that a second start has again, with all loops; of the others the loop that needs no torch, whose import is most of the time.
SAMPLE: list[tuple[str, How, tuple[str, ...]]] = [
    ("torchrun --rdzv-id", "crash", LOOPS),
    ("torchrun --master-addr", "end", ("bare",)),
    ("srun twice", "crash", ("bare",)),
    ("sbatch --requeue", "end", ("bare",)),
    ("mpirun", "crash", ("bare",)),
    ("RANK and WORLD_SIZE", "crash", ("bare",)),
    ("setsid nohup", "end", ("bare",)),
]
_REMEDY = (
    "`make test` as root installs it (Debian: apt-get install slurmctld slurmd slurm-client openmpi-bin)"
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    for program in ("srun", "slurmctld", "slurmd"):
        need(program, remedy=_REMEDY)
    with slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.mark.parametrize(
    ("launcher", "how", "loops"), SAMPLE, ids=lambda value: re.sub(r"\W+", "-", str(value))
)
def test_a_second_start_goes_on_from_the_newest_commit(
    launcher: str, how: How, loops: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Goal: never from nothing. Method: real launchers start one program twice in the same words, after a crash and after an end."""
    if launcher == "mpirun":
        need("mpirun", remedy=_REMEDY)
    variables = request.getfixturevalue("cluster") if launcher in OF_SLURM else None
    stream = request.getfixturevalue("stream").folder if "run" in loops else tmp_path
    results = outcomes(Cell(launcher, how, tmp_path / "out", stream, loops, variables))
    assert all(result.good for result in results), results


def test_the_sample_is_of_the_matrix() -> None:
    assert {launcher for launcher, _, _ in SAMPLE} <= set(LAUNCHERS)
