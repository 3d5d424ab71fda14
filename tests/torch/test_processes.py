"""Lanes come from real process groups, and a killed training run goes on bit for bit."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Lane, errors
from penstock.data import join
from penstock.torch import current_lane
from tests.torch.stream import Stream

TIMEOUT_S = 120


def run(job: str, stream: Stream, out: Path, root: Path) -> None:
    """Run a job of `processes` in processes of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.torch.processes", job, str(stream.folder), str(out)],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def seen(stream: Stream, tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[int, list[Any]]:
    """What every rank of a gloo group of two, and of four, saw."""
    out = tmp_path_factory.mktemp("ranks")
    run("ranks", stream, out, root)
    return {
        world: [json.loads((out / f"rank-{number}-of-{world}.json").read_text()) for number in range(world)]
        for world in (2, 4)
    }


@pytest.mark.parametrize("world", [2, 4])
def test_the_ranks_of_a_group_partition_every_batch(
    stream: Stream, seen: dict[int, list[Any]], world: int
) -> None:
    """Goal: D2 with lanes from torch.distributed. Method: a real gloo group; join what its ranks got."""
    parts = [rank["group"] for rank in seen[world]]
    assert [part["lane"] for part in parts] == [[number, world] for number in range(world)]
    for step, whole in enumerate(stream.batches(8)):
        assert join([part["digests"][step] for part in parts]) == whole.digest
        assert list(itertools.chain(*(part["tokens"][step] for part in parts))) == whole["tokens"].tolist()


def test_ranks_of_one_tensor_parallel_group_get_the_same_rows(
    stream: Stream, seen: dict[int, list[Any]]
) -> None:
    """Goal: lanes from a mesh. Method: a real 2 x 2 mesh (dp, tp), whose ranks 0 1 and 2 3 differ in tp only."""
    ranks = seen[4]
    assert [rank["dp"]["lane"] for rank in ranks] == [[0, 2], [0, 2], [1, 2], [1, 2]]
    assert ranks[0]["dp"] == ranks[1]["dp"]
    assert ranks[2]["dp"] == ranks[3]["dp"]
    for step, whole in enumerate(stream.batches(8)):
        assert join([ranks[0]["dp"]["digests"][step], ranks[2]["dp"]["digests"][step]]) == whole.digest
    assert [rank["tp"]["lane"] for rank in ranks] == [[0, 2], [1, 2], [0, 2], [1, 2]]
    assert [rank["both"]["lane"] for rank in ranks] == [[0, 4], [2, 4], [1, 4], [3, 4]]
    assert [rank["part"] for rank in ranks] == [rank["dp"] for rank in ranks]


def test_without_a_group_there_is_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_lane() == Lane()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    with pytest.raises(errors.UsageError, match="no process group") as caught:
        current_lane()
    assert "init_process_group" in str(caught.value.hint)
    # A gang of one needs no group.
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert current_lane() == Lane()


def test_a_run_killed_anywhere_is_bit_equal_to_the_whole_one(
    stream: Stream, tmp_path: Path, root: Path
) -> None:
    """Goal: R1 on one process. Method: SIGKILL a real training process after a step, between writing a state and putting
    it in place, and right after; go on from the last saved state; compare every loss and digest, repeated ones too."""
    run("killings", stream, tmp_path, root)

    whole, killed = (
        [tuple(json.loads(line)) for line in (tmp_path / name / "losses.jsonl").read_text().splitlines()]
        for name in ("whole", "killed")
    )

    assert [step for step, _, _ in whole] == list(range(24))
    assert [digest for _, _, digest in whole] == [batch.digest for batch in stream.batches(24)]
    # Died after 7 with 4 saved, after 14 with 9 saved, after 19 with 19 saved.
    assert [step for step, _, _ in killed] == [*range(8), *range(5, 15), *range(10, 24)]
    assert set(killed) == set(whole)
