"""Ranks of the checkpoint benchmark: processes that hold shares of one state and do the same thing at the same time."""

import mmap
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.state.contract import Box, Copying, Held
from penstock.state.load.host_mover import HOST, bytes_of

TENSORS = 160
ROWS, COLUMNS = 3072, 1024
STATE_BYTES = TENSORS * ROWS * COLUMNS * 4
BLOCK_BYTES = 8 << 20


class Shares:
    """A tree whose tensors are divided among ranks by rows, as FSDP2 does it."""

    def __init__(self, rank: int, ranks: int, *, seed: int | None) -> None:
        self.rank, self.ranks = rank, ranks
        first, end = (ROWS * k // ranks for k in (rank, rank + 1))
        self.boxes = Box((first, 0), (end - first, COLUMNS))
        self.arrays = {f"model/layer.{n}.weight": self._array(n, seed) for n in range(TENSORS)}

    def _array(self, number: int, seed: int | None) -> Any:
        """Numbers that follow from tensor and row alone, so that every layout has the same ones."""
        if seed is None:
            return np.ones(self.boxes.shape, np.float32)
        rows = np.arange(self.boxes.offset[0], self.boxes.offset[0] + self.boxes.shape[0], dtype=np.uint32)
        words = (rows[:, None] * np.uint32(2654435761)) ^ (
            np.arange(COLUMNS, dtype=np.uint32) * np.uint32(40503) + np.uint32(number * 977 + seed)
        )
        return words.view(np.float32)

    def held(self) -> list[Held]:
        """All of them."""
        return [
            Held(name, "F32", (ROWS, COLUMNS), self.boxes, HOST, bytes_of(array))
            for name, array in self.arrays.items()
        ]

    def values(self) -> dict[str, Any]:
        """None."""
        return {}

    def load_values(self, values: dict[str, Any]) -> None:
        """None."""

    def loaded(self) -> None:
        """Nothing follows."""

    def entries(self) -> dict[str, Any]:
        """None."""
        return {}

    def load_entries(self, entries: dict[str, Any]) -> None:
        """None."""

    def on_save(self, copying: Copying) -> None:
        """Host copies are done when they return."""


@dataclass(frozen=True, slots=True)
class Rank:
    """What a rank is given."""

    rank: int
    ranks: int
    folder: Path
    barrier: Barrier


def gang(work: Callable[[Rank], dict[str, float]], ranks: int, folder: Path) -> list[dict[str, float]]:
    """Do the same on some ranks; what each of them measured."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(ranks)
    pipes = [context.Pipe() for _ in range(ranks)]
    processes = [
        context.Process(target=_run, args=(work, Rank(rank, ranks, folder, barrier), pipe[1]))
        for rank, pipe in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    results = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join(60)
    return results


def _run(work: Callable[[Rank], dict[str, float]], rank: Rank, pipe: Any) -> None:
    pipe.send(work(rank))


def together(rank: Rank, act: Callable[[], Any]) -> float:
    """Seconds from when all begin until all are done."""
    rank.barrier.wait(300)
    began = time.perf_counter()
    act()
    rank.barrier.wait(300)
    return time.perf_counter() - began


def saving(rank: Rank) -> dict[str, float]:
    """Limits and saves in turns, in the same processes; the best of each, and the memory that saving took."""
    state = Shares(rank.rank, rank.ranks, seed=1)
    copy = [np.ones_like(array) for array in state.arrays.values()]
    best = dict.fromkeys(("write", "save", "memcpy", "blocked"), float("inf"))
    before = peak_bytes()
    place = rank.folder / f"ck{rank.ranks}"
    with ps.Checkpoints(place, rank=rank.rank, ranks=rank.ranks, token="bench", keep=ps.Keep(last=1)) as ck:
        for step in range(4):
            for array in state.arrays.values():
                array.view(np.uint32)[:] += np.uint32(1)
            best["write"] = min(best["write"], together(rank, lambda: raw_write(rank, state)))
            best["memcpy"] = min(best["memcpy"], together(rank, lambda: _copy_all(state, copy)))
            took, blocked = save_once(rank, ck, step, state)
            if step:
                best["save"] = min(best["save"], took)
                best["blocked"] = min(best["blocked"], blocked)
    extra = (peak_bytes() - before) / (STATE_BYTES / rank.ranks)
    return {**best, "extra": extra}


def save_once(rank: Rank, checkpoints: ps.Checkpoints, step: int, state: Shares) -> tuple[float, float]:
    """Seconds until all ranks are durable, and for how long this one was held up."""
    blocked = []

    def save() -> None:
        pending = checkpoints.save(step, state)
        pending.wait()
        blocked.append(pending.blocked_s)

    return together(rank, save), blocked[0]


def _load(checkpoints: ps.Checkpoints, state: Shares) -> None:
    newest = checkpoints.latest()
    assert newest is not None
    checkpoints.load(newest, into=state)


def loading(rank: Rank) -> dict[str, float]:
    """A cold read of the bytes, and loads of what ranks of another number saved, in turns."""
    times: dict[str, float] = {}
    state = Shares(rank.rank, rank.ranks, seed=None)
    for saved in (4, 2):
        place = rank.folder / f"ck{saved}"
        files = sorted((place / "data").rglob("*.safetensors"))
        for _ in range(3):
            read = together(rank, partial(raw_read, rank, files))
            times[f"read{saved}"] = min(times.get(f"read{saved}", float("inf")), read)
            before = peak_bytes()
            ck = ps.Checkpoints(place, rank=rank.rank, ranks=rank.ranks, read_only=True)
            took = together(rank, partial(_load, ck, state))
            times[f"load{saved}"] = min(times.get(f"load{saved}", float("inf")), took)
            times["extra"] = max(
                times.get("extra", 0.0), (peak_bytes() - before) / (STATE_BYTES / rank.ranks)
            )
    return times


def raw_write(rank: Rank, state: Shares) -> None:
    """The bytes of this rank, past the page cache, and synced."""
    path = rank.folder / f"raw{rank.rank}"
    total = STATE_BYTES // rank.ranks
    block = mmap.mmap(-1, BLOCK_BYTES)
    block.write(
        bytes_of(next(iter(state.arrays.values())))[:BLOCK_BYTES]
        .tobytes()[:BLOCK_BYTES]
        .ljust(BLOCK_BYTES, b"x")
    )
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    try:
        os.posix_fallocate(file, 0, total)
        for at in range(0, total, BLOCK_BYTES):
            os.pwrite(file, memoryview(block)[: min(BLOCK_BYTES, total - at)], at)
        os.fsync(file)
    finally:
        os.close(file)


def raw_read(rank: Rank, files: list[Path]) -> None:
    """A rank's share of the files' bytes, past the page cache."""
    block = mmap.mmap(-1, BLOCK_BYTES)
    for path in files:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            total = os.fstat(file).st_size // BLOCK_BYTES
            for at in range(rank.rank, total, rank.ranks):
                os.preadv(file, [block], at * BLOCK_BYTES)
        finally:
            os.close(file)


def _copy_all(state: Shares, copy: list[Any]) -> None:
    for to, array in zip(copy, state.arrays.values(), strict=True):
        np.copyto(to, array)


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
