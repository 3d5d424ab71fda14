"""How fast raw files are indexed, against reading them cold; how large indexes are; how much memory it takes.

Cold means that the page cache was asked to forget the files before each round. The reference reads the same files with as
many threads as registration uses.
"""

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.table import Table, timed
from penstock import Registry

FILES = 4
FILE_BYTES = 96 << 20
ROUNDS = 3


def run() -> Table:
    """Measure in one run."""
    table = Table("indexing runs at 0.5 x the speed of a cold read or more", "MB/s", smaller_is_better=False)
    with tempfile.TemporaryDirectory(dir=os.environ.get("PENSTOCK_BENCH_DIR")) as folder:
        place = Path(folder)
        for kind, write in {"jsonl": write_jsonl, "webdataset": write_tar, "mds": write_mds}.items():
            paths = [write(place, number) for number in range(FILES)]
            total = sum(path.stat().st_size for path in paths)
            cold = min(timed(partial(read_all, paths)) for _ in range(ROUNDS) if forget(paths))
            rounds = [register(place / f"registry-{kind}-{n}", paths, kind) for n in range(ROUNDS)]
            seconds = min(took for took, _, _ in rounds)
            _, index_bytes, memory = rounds[0]
            if not table.rows:
                table.add(f"cold read, {kind}", total / cold / 1e6)
            else:
                table.add(f"cold read, {kind}", total / cold / 1e6, "(reference of the next line)")
            ratio = cold / seconds
            note = f"{ratio:.2f} of its cold read, index {index_bytes / total:.2%} of the data, peak memory {memory / 1e6:.0f} MB"
            table.add(f"register, {kind}", total / seconds / 1e6, note)
            for path in paths:
                path.unlink()
    return table


def register(registry: Path, paths: list[Path], kind: str) -> tuple[float, int, int]:
    """Seconds, bytes of indexes and peak memory of a registration in a fresh process."""
    forget(paths)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_register", str(registry), kind, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, memory = done.stdout.split()
    index_bytes = sum(path.stat().st_size for path in (registry / "objects").iterdir())
    return float(seconds), index_bytes, int(memory)


def main() -> None:
    """The child of ``register``: registers once and prints seconds and peak memory."""
    registry, kind, *paths = sys.argv[1:]
    opened = Registry(registry)
    seconds = timed(lambda: opened.register("data", paths, format=kind))
    # Not ru_maxrss, which a child inherits from the process that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(seconds, int(status["VmHWM"].split()[0]) * 1024)


def forget(paths: list[Path]) -> bool:
    """Ask the page cache to drop the files."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def read_all(paths: list[Path]) -> None:
    """Every byte, in large pieces, one thread per processor."""

    def read(path: Path) -> None:
        buffer = bytearray(4 << 20)
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(read, paths))


def write_jsonl(place: Path, number: int) -> Path:
    """Documents of web length."""
    draw = random.Random(number)
    words = ["the", "water", "pressure", "turbine", "of", "a", "gradient", "and", "batch", "data", "ü", "\n"]
    rows = [
        json.dumps({"id": n, "text": " ".join(draw.choices(words, k=draw.randint(50, 700))), "lang": "en"})
        for n in range(2000)
    ]
    block = ("\n".join(rows) + "\n").encode()
    path = place / f"{number}.jsonl"
    with path.open("wb") as file:
        for _ in range(FILE_BYTES // len(block)):
            file.write(block)
    return path


def write_tar(place: Path, number: int) -> Path:
    """Pictures of 40 KB with a label."""
    draw = np.random.default_rng(number)
    path = place / f"{number}.tar"
    with tarfile.open(path, "w") as archive:
        for sample in range(FILE_BYTES // 41_000):
            for name, data in ((f"{sample:06d}.jpg", draw.bytes(40_000)), (f"{sample:06d}.cls", b"7")):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


def write_mds(place: Path, number: int) -> Path:
    """Samples of 2 KB, laid out as MosaicML's writer does."""
    from penstock.formats.contract import FieldKind
    from penstock.formats.export.mds_writer import MdsWriter

    draw = np.random.default_rng(number)
    writer = MdsWriter(place, str(number), [FieldKind("id", "int"), FieldKind("data", "bytes")])
    writer.add([{"id": n, "data": draw.bytes(2000)} for n in range(FILE_BYTES // 2012)], 0)
    for staged, final in writer.finish():
        staged.rename(final)
    return place / f"{number}.mds"


if __name__ == "__main__":
    main()
