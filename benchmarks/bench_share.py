"""Four processes that read one lane, sharing its batches or each for itself; and how long a killed reader is missed.

A batch is 8 rows of 2,048 tokens packed from documents, or 32 images of 64 x 64 that Python decodes. Every process reads the same
steps as fast as it can, which is harder on sharing than training is. Numbers are of all four together; processor time includes the threads
that make and serve. Memory is what is private to the processes or shared among them (Pss) plus what a reader keeps for others. The last
row is the time from kill -9 of the reader to the next batch that a follower could not have had before.
"""

import io
import multiprocessing as mp
import os
import resource
import signal
import tarfile
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import penstock as ps
from benchmarks.bench_feed import write_megatron
from benchmarks.table import Table

PROCESSES = 4
STEPS = {"tokens": 3000, "images": 60}
KILLS = 20
PICTURES = 512


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    """The picture as an array."""
    return {"image": np.asarray(Image.open(io.BytesIO(row["png"])))}


def recipe_of(kind: str) -> ps.Recipe:
    """What is read."""
    if kind == "tokens":
        return ps.Recipe(sources=(ps.Source("docs"),), seed=1, batch=8, stages=(ps.Pack(2048),))
    return ps.Recipe(sources=(ps.Source("pictures", stages=(ps.Map(decoded),)),), seed=1, batch=32)


def _read(line: Connection, place: Path, kind: str, share: bool, threads: int) -> None:
    with ps.open(
        recipe_of(kind), registry=ps.Registry(place / "registry"), share=share, threads=threads
    ) as feed:
        next(feed)
        line.send("ready")
        before = resource.getrusage(resource.RUSAGE_SELF)
        while (count := line.recv()) is not None:
            for _ in range(count):
                next(feed)
            used, sharing = resource.getrusage(resource.RUSAGE_SELF), feed.statistics().sharing
            cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            line.send(
                (
                    cpu,
                    _pss_bytes() + (sharing.kept_bytes if sharing else 0),
                    sharing.standing if sharing else "",
                )
            )


def _pss_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


class _Gang:
    """Processes that read one lane."""

    def __init__(self, place: Path, kind: str, *, share: bool, threads: int = 1) -> None:
        context = mp.get_context("spawn")
        self.members: list[tuple[Any, Connection]] = []
        for _ in range(PROCESSES):
            mine, theirs = context.Pipe()
            process = context.Process(target=_read, args=(theirs, place, kind, share, threads), daemon=True)
            process.start()
            self.members.append((process, mine))
        for _, line in self.members:
            line.recv()

    def read(self, count: int) -> list[tuple[float, int, str]]:
        """Let all read; processor seconds, bytes and standing of each."""
        for _, line in self.members:
            line.send(count)
        return [line.recv() for _, line in self.members]

    def close(self) -> None:
        """End all."""
        for process, line in self.members:
            line.send(None)
            process.join()


def run() -> Table:
    """Measure in one run."""
    table = Table("a lane is made once for all processes of a host", "batches/s", smaller_is_better=False)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _write(place)
        for kind, steps in STEPS.items():
            figures = {share: _measure(place, kind, steps, share=share) for share in (False, True)}
            for share, (rate, cpu, size) in figures.items():
                base = figures[False]
                note = f"{cpu * 1e6:.0f} us of processors per batch ({cpu / base[1]:.2f} x), "
                note += f"{size >> 20} MiB ({size / base[2]:.2f} x), {rate / base[0]:.2f} x the batches/s"
                table.add(f"{kind}, {PROCESSES} processes {'sharing' if share else 'alone'}", rate, note)
        times = sorted(_replaced(place) for _ in range(KILLS))
        note = (
            f"median {times[len(times) // 2] * 1e3:.1f} ms, worst of {KILLS} kills {times[-1] * 1e3:.1f} ms"
        )
        table.add("kill -9 of the reader to the next batch", 1 / times[-1], note)
    return table


def _measure(place: Path, kind: str, steps: int, *, share: bool) -> tuple[float, float, int]:
    gang = _Gang(place, kind, share=share)
    gang.read(steps // 10)
    before = sum(cpu for cpu, _, _ in gang.read(1))
    begun = time.perf_counter()
    answers = gang.read(steps)
    took = time.perf_counter() - begun
    gang.close()
    cpu = sum(cpu for cpu, _, _ in answers) - before
    return PROCESSES * steps / took, cpu / (PROCESSES * steps), sum(size for _, size, _ in answers)


def _replaced(place: Path) -> float:
    """From the death of a reader to a batch that its followers had to get elsewhere."""
    gang = _Gang(place, "tokens", share=True, threads=0)
    answers = gang.read(5)
    at = [standing for _, _, standing in answers].index("reader")
    process, line = gang.members.pop(at)
    assert process.pid is not None
    begun = time.perf_counter()
    os.kill(process.pid, signal.SIGKILL)
    gang.read(1)
    took = time.perf_counter() - begun
    process.join()
    line.close()
    gang.close()
    return took


def _write(place: Path) -> None:
    draws = np.random.default_rng(3)
    write_megatron(place / "docs", draws.integers(0, 50_000, 700 * 20_000, dtype=np.uint16))
    with tarfile.open(place / "pictures.tar", "w") as archive:
        for number in range(PICTURES):
            stream = io.BytesIO()
            Image.fromarray(draws.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "png")
            info = tarfile.TarInfo(f"{number:04}.png")
            info.size = len(stream.getvalue())
            archive.addfile(info, io.BytesIO(stream.getvalue()))
    registry = ps.Registry(place / "registry")
    registry.register("docs", place / "docs.bin")
    registry.register("pictures", place / "pictures.tar")
