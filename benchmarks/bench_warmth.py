"""What a checkpoint of 1 GiB costs when files or memory were used before, and when not: loads against DCP, saves against later saves.

Everything in one process without a group. The cache is emptied of the files before a cold load and filled before a warm one. In a virtual machine
memory that was never used is slow to get, so the first save is measured in a process of its own: at once, and after a resume
whose preparation is over.
"""

import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.table import Table, best_of, timed

_TENSORS, _ELEMENTS = 8, 1 << 24


def run() -> Table:
    """Measure in one run."""
    table = Table("1 GiB of state: warm loads against DCP, and the first save after a resume", "s")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder).resolve()
        warm_of_dcp, cold_of_dcp = _loads_of_dcp(place / "dcp")
        warm, cold = _loads(place / "ours")
        table.add("DCP, warm load", warm_of_dcp)
        table.add("load, warm", warm)
        table.add("DCP, cold load", cold_of_dcp)
        table.add("load, cold", cold)
        spawn = multiprocessing.get_context("spawn")
        for what, resume in (("at once", False), ("after a resume", True)):
            with spawn.Pool(1) as pool:
                first, later = pool.apply(_saves, (str(place / what), resume))
            table.add(f"first save {what}: held up", first)
            table.add(f"later saves, first {what}: held up", later)
    return table


def _tree() -> "dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]":
    return {f"w{number}": np.random.default_rng(number).random(_ELEMENTS) for number in range(_TENSORS)}


def _loads_of_dcp(place: Path) -> tuple[float, float]:
    """The same tensors by DCP, warm and cold."""
    import torch
    from torch.distributed import checkpoint

    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    tree = {name: torch.from_numpy(array) for name, array in _tree().items()}
    checkpoint.save(tree, checkpoint_id=place, no_dist=True)

    def load() -> object:
        return checkpoint.load(tree, checkpoint_id=place, no_dist=True)

    return _warm(place, load), _cold(place, load)


def _loads(place: Path) -> tuple[float, float]:
    """Ours, warm and cold."""
    tree = _tree()
    with ps.Checkpoints(place) as checkpoints:
        checkpoint = checkpoints.save(1, tree).wait()
        warm = _warm(place, lambda: checkpoints.load(checkpoint, tree))
        return warm, _cold(place, lambda: checkpoints.load(checkpoint, tree))


def _warm(place: Path, load: Callable[[], object]) -> float:
    for file in _files(place):
        file.read_bytes()
    return best_of(load, rounds=5)


def _cold(place: Path, load: Callable[[], object]) -> float:
    def once() -> float:
        for file in _files(place):
            handle = os.open(file, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
        return timed(load)

    return min(once() for _ in range(3))


def _files(place: Path) -> list[Path]:
    return [file for file in place.rglob("*") if file.is_file() and file.stat().st_size > 1 << 20]


def _saves(place: str, resume: bool) -> tuple[float, float]:
    """How long the first save and the shortest later one held their caller up."""
    tree = _tree()
    with ps.Checkpoints(place) as checkpoints:
        if resume:
            checkpoints.resume(tree)
            checkpoints._arenas._preparer.submit(lambda: None).result()
        held_up = []
        for step in range(4):
            pending = checkpoints.save(step, tree)
            held_up.append(pending.blocked_s)
            pending.wait()
            for array in tree.values():
                array += 1
    return held_up[0], min(held_up[1:])
