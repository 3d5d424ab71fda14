"""Samples that are no tokens, in the formats that people keep them in, and what batches must hold of them.

Three sources: ``pictures`` (two WebDataset archives of PNG files with JSON beside them), ``notes`` (parquet, with lists) and ``moves`` (npz, as
reinforcement learning keeps transitions). What a row must be is known from its number alone.
"""

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import penstock as ps
from penstock.data import Batch, Cursor, join

PICTURES, NOTES, MOVES = 40, 30, 50


def pixels(number: int) -> "np.ndarray[Any, Any]":
    """The picture of a row: 4 by 5 pixels of three colours."""
    return np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)


def png(number: int) -> bytes:
    """The picture as a file."""
    stream = io.BytesIO()
    Image.fromarray(pixels(number)).save(stream, "png")
    return stream.getvalue()


def picture(number: int) -> dict[str, Any]:
    """A row of ``pictures``."""
    about = {"label": number % 7, "caption": f"picture {number}"}
    return {"__key__": f"{number:04}", "png": png(number), "json": about, "cls": number % 3}


def note(number: int) -> dict[str, Any]:
    """A row of ``notes``."""
    words = list(range(number % 4))
    return {
        "id": number,
        "words": words,
        "text": f"note {number}",
        "score": number / 4,
        "good": number % 2 == 0,
    }


def move(number: int) -> dict[str, Any]:
    """A row of ``moves``: what was seen, what was done, what it brought."""
    seen = np.arange(6, dtype=np.float32).reshape(2, 3) + number
    return {"obs": seen, "action": np.int64(number % 5), "reward": np.float32(number / 8)}


ROWS = {"pictures": picture, "notes": note, "moves": move}


def write_archive(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A WebDataset archive; values that are no bytes are written as JSON."""
    with tarfile.open(path, "w") as archive:
        for row in rows:
            for field, value in row.items():
                if field != "__key__":
                    info = tarfile.TarInfo(f"{row['__key__']}.{field}")
                    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


@dataclass
class Gallery:
    """A registry with the three sources."""

    folder: Path

    def __post_init__(self) -> None:
        self.registry = ps.Registry(self.folder / "registry")

    @classmethod
    def make(cls, folder: Path) -> "Gallery":
        """Write and register everything."""
        (folder / "pictures").mkdir(parents=True)
        for shard, numbers in enumerate(np.array_split(np.arange(PICTURES), 2)):
            write_archive(folder / "pictures" / f"{shard}.tar", [picture(int(n)) for n in numbers])
        pq.write_table(
            pa.Table.from_pylist([note(n) for n in range(NOTES)]), folder / "notes.parquet", row_group_size=8
        )
        moves = [move(n) for n in range(MOVES)]
        np.savez(folder / "moves.npz", **{name: np.stack([row[name] for row in moves]) for name in moves[0]})
        gallery = cls(folder)
        for name in ("pictures", "notes.parquet", "moves.npz"):
            gallery.registry.register(name.partition(".")[0], folder / name)
        return gallery

    def recipe(self, *sources: Any, **fields: Any) -> ps.Recipe:
        """A recipe over sources, which may be plain addresses."""
        chosen = [source if isinstance(source, ps.Source) else ps.Source(source) for source in sources]
        return ps.Recipe(sources=chosen, **({"batch": 12, "seed": 17} | fields))

    def mixed(self, **fields: Any) -> ps.Recipe:
        """The hard case: all three sources, one filtered, with weights that change twice and a batch that grows."""
        sources = [ps.Source("pictures@1"), ps.Source("notes@1", stages=[ps.Filter("id != 7")]), "moves@1"]
        weights = [
            (0, {"pictures": 0.6, "notes": 0.3, "moves": 0.1}),
            (3, {"pictures": 0.2, "notes": 0.2, "moves": 0.6}),
            (7, {"pictures": 0.5, "notes": 0.5 - 1e-6, "moves": 1e-6}),
        ]
        return self.recipe(*sources, **({"weights": weights, "batch": [(0, 12), (5, 24)]} | fields))

    def open(self, recipe: ps.Recipe, **options: Any) -> Any:
        """A feed of this registry; reads in the caller's thread unless told otherwise."""
        return ps.open(recipe, registry=self.registry, **{"threads": 0, **options})

    def read(self, recipe: ps.Recipe, steps: int | None = None, **options: Any) -> list[Any]:
        """The first batches, or all of a stream that ends."""
        with self.open(recipe, **options) as feed:
            return list(feed) if steps is None else [next(feed) for _ in range(steps)]


def plain(value: Any) -> Any:
    """A value that can be compared, whether it stands in an array or in a list."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def rows_of(batch: Batch) -> list[dict[str, Any]]:
    """A batch row by row; fields that a row lacks are left out."""
    rows = [{name: plain(batch[name][row]) for name in batch} for row in range(len(batch["valid"]))]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def expected_row(source: str, sample: int) -> dict[str, Any]:
    """What a row of a batch must hold."""
    return {"valid": 1} | {name: plain(value) for name, value in ROWS[source](sample).items()}


@dataclass(frozen=True)
class Whole:
    """The batch of a step, however many lanes it was dealt to."""

    step: int
    digest: str
    rows: str


def whole(batches: Sequence[Batch]) -> Whole:
    """The lanes of a step put together."""
    rows = [row for batch in batches for row in rows_of(batch)]
    return Whole(batches[0].step, join([batch.digest for batch in batches]), repr(rows))


def read_lanes(
    gallery: Gallery, recipe: ps.Recipe, cursor: str | None, lanes: int, threads: int, steps: int
) -> tuple[list[Whole], str]:
    """Some steps of all lanes from a cursor on, and the cursor after them, which every lane must agree on."""
    at = None if cursor is None else Cursor.from_json(cursor)
    feeds = [
        gallery.open(recipe, lane=ps.Lane(k, of=lanes), cursor=at, threads=threads) for k in range(lanes)
    ]
    try:
        batches = [whole([next(feed) for feed in feeds]) for _ in range(steps)]
        (after,) = {feed.cursor.to_json() for feed in feeds}
        return batches, after
    finally:
        for feed in feeds:
            feed.close()
