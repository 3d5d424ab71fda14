"""Births and deaths of ranks, seen from outside and as the ledger has them, through 36 kills; O1 is checked for every rank and life.

A gang of four ranks, then of two on the same run, and one rank whose wall clock is set by an hour forward and back in every life, on a disk that is full
for a while in every second one. The kernel tells when a process is gone (pidfd) and when it was born (/proc).
"""

import tempfile
from pathlib import Path

from tests.report.ordeal import set_clock_and_full_disk, shrinking_gang, small_disk, summary
from tests.report.test_ordeal import check_ordeal
from tests.torch.stream import make_stream

from benchmarks.table import Table

#: Of four ranks, of two, and of one with a clock that is set.
KILLS = (12, 12, 12)


def run() -> Table:
    """Measure in one run."""
    table = Table("36 kills: births and deaths agree within 20 ms (median) and 100 ms (worst)", "ms")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "stream").mkdir()
        stream = make_stream(place / "stream")
        (place / "gang").mkdir()
        (place / "alone").mkdir()
        births: list[int] = []
        deaths: list[int] = []
        with small_disk(place / "disk") as disk:
            for ordeal in (
                shrinking_gang(stream, place / "gang", KILLS[:2], seed=3),
                set_clock_and_full_disk(stream, place / "alone", disk, KILLS[2], seed=4),
            ):
                check_ordeal(ordeal, ordeal.kills)
                for known, more in zip((births, deaths), ordeal.differences(), strict=True):
                    known += more
    for what, differences in (("births", births), ("deaths", deaths)):
        median, worst = summary(differences)
        # A birth is known to a tick of the kernel.
        table.add(f"{what}, median of {len(differences)}", max(median, 1e-3))
        table.add(f"{what}, worst", max(worst, 1e-3))
    return table
