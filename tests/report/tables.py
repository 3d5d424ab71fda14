"""Step tables with rows of any length, written by the real writer: what a rank would have recorded, without the time that it would have taken."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from penstock._rust import StepWriter
from penstock.observe.steps import UNMEASURED
from penstock.observe.steps.clock import boot_id, boottime_ns
from penstock.observe.steps.columns import FOLDER, INTEGERS

PLACES = {name: place for place, name in enumerate(INTEGERS)}


class Table:
    """The table of one rank of one life."""

    def __init__(self, run: Path, life: int = 0, rank: int = 0, *, at: int | None = None) -> None:
        self.folder = run / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        header = {
            "form": 1,
            "life": life,
            "rank": rank,
            "pid": os.getpid(),
            "host": "here",
            "boot_id": boot_id(),
        }
        self.stem = f"{life:06d}-{rank:04d}"
        self.writer = StepWriter(
            self.folder, self.stem, header=json.dumps(header), columns=list(INTEGERS), bytes_max=1 << 30
        )
        #: Where the next row begins.
        self.at = boottime_ns() - 10**12 if at is None else at
        self.writer.anchor(self.at, self.at, self.at)

    def steps(self, numbers: Iterable[int], took_ns: int = 10**7, **facts: int) -> None:
        """Rows that tile; a fact is a column of whole numbers, ``flops`` those of a type, and ``loss`` a number of the program."""
        for number in numbers:
            values = [UNMEASURED] * len(INTEGERS)
            # Not all of them take the same time.
            end = self.at + took_ns + number * 7919 % 1000
            values[:3] = number, self.at, end
            values[PLACES["host.user"]] = end - self.at
            values[PLACES["rss"]] = 10**8
            for name, value in facts.items():
                if name in PLACES:
                    values[PLACES[name]] = value
            if "flops" in facts:
                values[PLACES["flops_useful"]] = values[PLACES["flops_executed"]] = facts["flops"]
            self.writer.begin(number, self.at)
            row = self.writer.row(values)
            for kind in ("useful", "executed", "palm") if "flops" in facts else ():
                column = self.writer.column(f"flops.{kind}.bfloat16", is_float=False)
                assert column is not None
                self.writer.patch(row, column, facts["flops"])
            loss = self.writer.column("scalar.loss", is_float=True)
            assert loss is not None
            self.writer.patch_float(row, loss, 1.0 / (1 + number))
            self.at = end
            if number % 1000 == 999:
                # The queue is bounded, and this is faster than any training.
                self.flush()

    def flush(self) -> None:
        """Everything is on file."""
        assert self.writer.flush(30.0)

    def close(self) -> None:
        """In order."""
        self.writer.close()
