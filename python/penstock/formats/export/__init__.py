"""Writers of exports, one file per format. They write what the peers' own readers read."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from penstock.formats.contract import FieldKind, Row

#: Target -> ``module:class``.
WRITERS = {
    "parquet": "penstock.formats.export.parquet_writer:ParquetWriter",
    "jsonl.zst": "penstock.formats.export.jsonl_writer:JsonlWriter",
    "mds": "penstock.formats.export.mds_writer:MdsWriter",
    "webdataset": "penstock.formats.export.webdataset_writer:WebDatasetWriter",
    "bin-idx": "penstock.formats.export.megatron_writer:MegatronWriter",
}


class Writer(Protocol):
    """Writes one shard under a temporary name."""

    #: The format that reads it back.
    format: str

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None: ...

    def add(self, rows: list[Row], first: int) -> None:
        """Append rows; ``first`` is the number of the first one, for messages."""

    def abandon(self) -> None:
        """Give up after an error, leaving no file behind."""

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Close; the files as they are and as they shall be called."""


def writer_named(target: str) -> type[Writer]:
    """The writer of a target that is known to exist."""
    module, _, attribute = WRITERS[target].partition(":")
    return cast(type[Writer], getattr(import_module(module), attribute))
