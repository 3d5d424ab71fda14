"""Cold reads from a real nginx over the loopback, against curl with parallel ranges and against object_store through obstore.

Cold means that nothing is cached on our side; the server has the files in its page cache, so that what is compared are the readers. Server and
readers share the machine's cores. Curl throws away what it reads; object_store and we keep it in memory, we in memory of the caller.
"""

import importlib
import itertools
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faulty.nginx import nginx

from benchmarks.table import Table
from penstock.store.remote import RemoteStore

FILE_BYTES = 512 << 20
PART_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
AT_ONCE = 8
ROUNDS = 7

#: Name, first byte, end.
Range = tuple[str, int, int]


def run() -> Table:
    """Measure in one run, contenders taking turns."""
    table = Table(
        "cold reads over HTTP are at least 0.8 of the best of curl and object_store",
        "MB/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "web").mkdir()
        write(place / "web" / "a.bin")
        with nginx(place / "web", place / "nginx", workers=2) as url:
            whole = [("a.bin", 0, FILE_BYTES)]
            # Every second piece, so that nobody can make one request of two.
            pieces = [("a.bin", at, at + PIECE_BYTES) for at in range(0, FILE_BYTES, 2 * PIECE_BYTES)]
            for what, ranges, part_bytes in (
                ("whole file", whole, PART_BYTES),
                ("1 MiB pieces", pieces, PIECE_BYTES),
            ):
                contend(table, what, url, [cut for span in ranges for cut in cuts(span, part_bytes)])
    return table


def contend(table: Table, what: str, url: str, parts: list[Range]) -> None:
    """All contenders on the same ranges."""
    store = RemoteStore(url)
    pool = ThreadPoolExecutor(AT_ONCE)
    total = sum(end - start for _, start, end in parts)
    adjacent = all(before[2] == after[1] for before, after in itertools.pairwise(parts))

    memory = memoryview(bytearray(total))

    def read(part: Range) -> None:
        # Pieces lie in memory as in the file, without the gaps.
        place = part[1] if adjacent else part[1] // 2
        store.client.read_into(part[0], part[1], memory[place : place + part[2] - part[1]])

    def ours() -> None:
        whole = (parts[0][0], parts[0][1], parts[-1][2])
        list(pool.map(read, [whole] if adjacent else parts))

    contenders: dict[str, Callable[[], object]] = {
        f"{what}: curl, {AT_ONCE} at once": lambda: curl(url, parts),
        f"{what}: penstock": ours,
    }
    try:
        get_range = object_store(url)
    except ImportError:
        print("obstore is not installed and left out: pip install -e '.[bench]'")
    else:
        # One call for each: `get_ranges` makes one request of neighbours, which is one connection and slower.
        contenders[f"{what}: object_store, {AT_ONCE} at once"] = lambda: list(pool.map(get_range, parts))
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, work in contenders.items():
            begun = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - begun)
    best = min(min(taken[name]) for name in taken if "penstock" not in name)
    for name, times in taken.items():
        table.add(name, total / min(times) / 1e6, f"{best / min(times):.2f} of the best other")
    pool.shutdown()


def object_store(url: str) -> Callable[[Range], object]:
    """The same crate that is below our client, through other bindings."""
    obstore = importlib.import_module("obstore")
    store = importlib.import_module("obstore.store").HTTPStore.from_url(
        url, client_options={"allow_http": True}
    )
    return lambda part: obstore.get_range(store, part[0], start=part[1], end=part[2])


def curl(url: str, parts: list[Range]) -> None:
    """One process, many ranges, several at a time over connections that are used again."""
    program = shutil.which("curl")
    assert program is not None, "curl is not installed"
    lines = []
    for name, start, end in parts:
        lines += [f'url = "{url}/{name}"', f'range = "{start}-{end - 1}"', 'output = "/dev/null"', "next"]
    command = [
        program,
        "--silent",
        "--no-progress-meter",
        "--show-error",
        "--fail",
        "--parallel",
        "--parallel-max",
        str(AT_ONCE),
        "-K",
        "-",
    ]
    subprocess.run(command, input="\n".join(lines[:-1]), text=True, check=True)


def cuts(whole: Range, part_bytes: int) -> list[Range]:
    """A range in parts."""
    name, start, end = whole
    return [(name, at, min(at + part_bytes, end)) for at in range(start, end, part_bytes)]


def write(path: Path) -> None:
    """A file of bytes that do not compress."""
    block = random.Random(1).randbytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(block)
