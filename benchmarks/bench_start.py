"""How long the command line and the import take, against a bare interpreter."""

import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.table import Table, median_of

PENSTOCK = Path(sys.executable).with_name("penstock")


def run() -> Table:
    """Measure in one run."""
    table = Table("`import penstock` under 100 ms, `penstock --help` under 150 ms", "ms")
    for what, command in {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import penstock": [sys.executable, "-c", "import penstock"],
        "import penstock.events": [sys.executable, "-c", "import penstock.events"],
        "penstock --help": [PENSTOCK, "--help"],
        "penstock --version": [PENSTOCK, "--version"],
        "penstock events --help": [PENSTOCK, "events", "--help"],
    }.items():
        table.add(
            what,
            median_of(partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)) * 1e3,
        )
    return table
