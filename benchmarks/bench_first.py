"""How long a fresh process takes to its first shuffled batch, and what it holds after 2,000, against numpy alone.

Real processes, timed from outside: from the start of the interpreter to the moment when a batch of 8 rows is there.
Everything that is done once (registering, converting, measuring) was done before, and the page cache is warm. The baseline
imports numpy, maps the file and copies a batch. CPU is what the process had until then. Memory is what the process alone has
written (Private_Dirty), and beside it what it alone maps (USS), which counts pages of mapped files too.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.bench_peers import answer, command, environment, prepare
from benchmarks.table import Table

ROUNDS = 9
MORE = 2000
MEMORY_TIMEOUT_S = 300
#: Shares its pages with its workers, so that what it alone holds says nothing.
NOT_ALONE = "torchdata, 2 workers"


def run() -> Table:
    """Measure in one run, in alternating rounds; the median of each."""
    table = Table("the first batch of a fresh process within 3 x the time of numpy's", "ms")
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        names = prepare(folder)
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for _ in range(ROUNDS):
            for name in names:
                spent[name].append(first_batch(name, folder))
        bare = memory("import numpy", folder)
        for name in names:
            wall, cpu = (statistics.median(times) * 1e3 for times in zip(*spent[name], strict=True))
            held = "" if name == NOT_ALONE else f"; {words(memory(name, folder), bare)}"
            table.add(name, wall, f"{cpu:.0f} ms CPU{held}")
    print(
        f"a process that imports numpy: {bare[0] / 1024:.1f} MiB written, {bare[1] / 1024:.1f} MiB USS",
        file=sys.stderr,
    )
    print(f"load average after: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    return table


def first_batch(name: str, folder: str) -> tuple[float, float]:
    """Seconds from the start of a process to its first batch, and seconds of CPU that it had."""
    before = cpu_of_children()
    begun = time.perf_counter()
    with subprocess.Popen(
        command("first", name, folder, "0"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert answer(child) == "first", f"{name} gave no batch"
        spent = time.perf_counter() - begun
        child.kill()
    return spent, cpu_of_children() - before


def cpu_of_children() -> float:
    """Seconds of CPU of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory(name: str, folder: str) -> tuple[int, int, bool]:
    """KiB written and KiB mapped by a process alone after its batches, and whether it has imported pyarrow."""
    done = subprocess.run(
        command("first", name, folder, str(MORE)),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=MEMORY_TIMEOUT_S,
    )
    written, mapped, pyarrow = done.stdout.splitlines()[-1].split()
    return int(written), int(mapped), pyarrow == "True"


def words(usage: tuple[int, int, bool], bare: tuple[int, int, bool]) -> str:
    """What a process holds, in words."""
    written, mapped, pyarrow = usage
    more = (written - bare[0]) / 1024
    shown = f"{written / 1024:.0f} MiB written, {more:.0f} more than numpy; USS {mapped / 1024:.0f} MiB"
    return f"{shown}; imports pyarrow" if pyarrow else shown
