"""Rows of steps with values of a test's choice, written by the real writer."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock._rust import StepWriter
from penstock.observe.steps import UNMEASURED
from penstock.observe.steps.columns import FOLDER, INTEGERS


def writer_of(
    folder: Path, life: int, *, rank: int = 0, bytes_max: int = 1 << 30, boot_id: str = "b"
) -> StepWriter:
    """Of one rank of one life."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    header = {"form": 1, "life": life, "rank": rank, "boot_id": boot_id}
    return StepWriter(
        folder / FOLDER,
        f"{life:06d}-{rank:04d}",
        header=msgspec.json.encode(header).decode(),
        columns=list(INTEGERS),
        bytes_max=bytes_max,
    )


def row_of(values: Mapping[str, int]) -> list[int]:
    """A row; what is not given was not measured."""
    return [values.get(name, UNMEASURED) for name in INTEGERS]
