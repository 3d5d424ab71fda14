"""Reading taps and rings: what processes that run now have in their hands, and what they show of their own arrays.

Files are written by processes that may die, or may be somebody else's, so nothing in them is believed before its check
matches. A tap whose process is gone is stale, and is told to be.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy.typing as npt

from penstock.data.feed.lane import Lane, parse_lane
from penstock.data.tap import arrays as showing
from penstock.data.tap import feed_tap as tapping
from penstock.data.tap.columns import unpack
from penstock.errors import UsageError
from penstock.view.wire.batch_answers import TapFacts

_BYTES_MAX = 1 << 26
_FILES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Tapped:
    """What one reader has in its hands."""

    path: Path
    pid: int
    #: Whether the process that wrote it is there; None where it ran on another machine.
    alive: bool | None
    #: What it reads: recipe, registry, skips, lane, rank.
    about: Mapping[str, Any]
    #: None before the first batch.
    step: int | None
    digest: str
    #: Seconds since 1970.
    at: float

    @property
    def lane(self) -> Lane:
        """The lane that it reads."""
        return parse_lane(str(self.about.get("lane", "0/1")))

    @property
    def name(self) -> str:
        """What it is called: the rank in a run, else the file."""
        return str(self.about.get("rank", self.path.stem))

    def to_json(self) -> TapFacts:
        """As plain values."""
        return {
            "name": self.name,
            "pid": self.pid,
            "alive": self.alive,
            "lane": str(self.lane),
            "step": self.step,
            "digest": self.digest,
            "age_s": round(time.time() - self.at, 3) if self.step is not None else None,
        }


@dataclass(frozen=True, slots=True)
class TapEntry:
    """One entry of a ring."""

    number: int
    at: float
    facts: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def read_tap(path: Path) -> Tapped | None:
    """What a tap says; None when the file is no tap, or is gone."""
    data = _content(path)
    if len(data) < tapping.DESCRIPTION or data[:8] != tapping.MAGIC:
        return None
    _, pid, length, born = tapping.HEADER.unpack_from(data)
    try:
        about = msgspec.json.decode(
            data[tapping.DESCRIPTION : tapping.DESCRIPTION + length], type=dict[str, Any]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    records = []
    for place in tapping.RECORDS:
        content = data[place : place + tapping.RECORD_BYTES]
        if crc32(content[:-4]) == int.from_bytes(content[-4:], "little"):
            records.append(tapping.RECORD.unpack(content[:-4]))
    # Two empty places have no check that matches.
    newest = max(records, default=None)
    alive = _alive(pid, born) if about.get("host") == os.uname().nodename else None
    if newest is None:
        return Tapped(path, pid, alive, about, None, "", 0.0)
    _, step, at, digest = newest
    return Tapped(path, pid, alive, about, step, digest.hex(), at)


def taps_in(folder: Path) -> list[Tapped]:
    """Every tap in a folder, those of dead processes too."""
    paths = sorted(folder.glob(f"*{tapping.SUFFIX}"))[:_FILES_MAX] if folder.is_dir() else []
    return [tap for path in paths if (tap := read_tap(path)) is not None]


def rings_in(folder: Path) -> dict[str, Path]:
    """Rings of a folder by name, with the process that shows them."""
    paths = sorted(folder.glob(f"*{showing.SUFFIX}"))[:_FILES_MAX] if folder.is_dir() else []
    return {path.stem: path for path in paths}


def read_ring(path: Path) -> tuple[list[TapEntry], int]:
    """Entries of a ring, oldest first, and how many calls the budget left out. An entry that is being written is not there."""
    data = _content(path)
    if len(data) < showing.HEADER_BYTES or data[:8] != showing.MAGIC:
        raise UsageError(f"{path} is not a ring of a tap")
    _, _, places, place_bytes, _, left = showing.HEADER.unpack_from(data)
    if places > 64 or showing.HEADER_BYTES + places * place_bytes > len(data):
        raise UsageError(
            f"{path} is a damaged ring: {places} places of {place_bytes:,} bytes in {len(data):,}"
        )
    entries = []
    for number in range(places):
        at = showing.HEADER_BYTES + number * place_bytes
        entry, when, length, check = showing.PLACE.unpack_from(data, at)
        content = data[at + showing.PLACE.size : at + showing.PLACE.size + min(length, place_bytes)]
        if entry and crc32(content) == check:
            facts, arrays = unpack(content)
            entries.append(TapEntry(entry, when, facts, arrays))
    return sorted(entries, key=lambda item: item.number), left


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _BYTES_MAX:
                return b""
            return file.read()
    except OSError:
        return b""


def _alive(pid: int, born: int) -> bool:
    return born != 0 and tapping.born_ticks(pid) == born
