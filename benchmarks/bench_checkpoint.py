"""How fast a state of 2 GB is saved and loaded by 4 ranks, against the disk's and the memory's own limits in the same run.

Limits: the same bytes written by the same processes past the page cache and synced, read past the page cache, and copied in
memory. Hashing is on, as always. Loads by another number of ranks than saved are compared with loads by the same.
"""

import tempfile
from pathlib import Path

from benchmarks.checkpoint_gang import STATE_BYTES, gang, loading, saving
from benchmarks.table import Table


def run() -> Table:
    """Save with 4 and with 2 ranks, load both with both."""
    table = Table(
        "2 GB of state, 4 ranks: save and load at 0.8 x the disk, blocked at 1.3 x memcpy",
        "GB/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder).resolve()
        saved = {ranks: gang(saving, ranks, place) for ranks in (4, 2)}
        loaded = {ranks: gang(loading, ranks, place) for ranks in (4, 2)}
    four = {key: max(figures[key] for figures in saved[4]) for key in saved[4][0]}
    speed = STATE_BYTES / 1e9
    table.add("limit: write past the cache + fsync, 4 processes", speed / four["write"])
    table.add("save until durable, 4 ranks", speed / four["save"])
    load = {
        ranks: {key: max(figures[key] for figures in by_rank) for key in by_rank[0]}
        for ranks, by_rank in loaded.items()
    }
    table.add("limit: cold read past the cache, 4 processes", speed / load[4]["read4"])
    table.add("load, 4 ranks from 4", speed / load[4]["load4"])
    table.add("load, 4 ranks from 2", speed / load[4]["load2"])
    table.add("load, 2 ranks from 2", speed / load[2]["load2"])
    table.add("load, 2 ranks from 4", speed / load[2]["load4"])
    print(f"save / limit:        {four['write'] / four['save']:.2f}")
    print(f"load / limit:        {load[4]['read4'] / load[4]['load4']:.2f}")
    print(f"blocked / memcpy:    {four['blocked'] / four['memcpy']:.2f} ({four['blocked']:.3f} s)")
    print(f"4 from 2 / 4 from 4: {load[4]['load2'] / load[4]['load4']:.2f} of the time")
    print(f"2 from 4 / 2 from 2: {load[2]['load4'] / load[2]['load2']:.2f} of the time")
    print(f"extra memory:        save {four['extra']:.2f} x the state, load {load[4]['extra']:.2f} x")
    return table
