"""``penstock.tap``: a training loop shows its own arrays, after its own collate, to whoever looks; within a budget of bytes.

Entries go into a ring, a file of a fixed size with a few places. A call that the budget does not allow returns at once and is counted.
What does not fit is cut by rows, and the entry says so. Tensors of a device are copied only when the budget allows it.
"""

import atexit
import mmap
import os
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from penstock.data.tap.columns import pack
from penstock.data.tap.feed_tap import born_ticks, home
from penstock.errors import UsageError

MAGIC = b"PENRING1"
SUFFIX = ".ring"
#: Magic, process, places, bytes of a place, when the process was born, how many calls were left out.
HEADER = struct.Struct("<8sIIQQQ")
HEADER_BYTES = 64
#: Number of the entry (0: nothing, or being written), seconds since 1970, bytes, check.
PLACE = struct.Struct("<QdII")
PLACES = 4
RING_BYTES = 4 << 20
#: Of each name that a process shows, in a second.
BYTES_PER_S = 1 << 20
_NAME_MAX, _RINGS_MAX = 100, 64


class Ring:
    """One name's entries. Safe to use from any thread."""

    def __init__(self, path: Path, *, ring_bytes: int = RING_BYTES, bytes_per_s: int = BYTES_PER_S) -> None:
        self.path = path
        self._place_bytes = ring_bytes // PLACES
        self._rate = float(bytes_per_s)
        self._credit = float(bytes_per_s)
        self._counted = time.monotonic()
        self._entries = self._left = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._born = born_ticks(self._pid)
        path.parent.mkdir(parents=True, exist_ok=True)
        size = HEADER_BYTES + PLACES * self._place_bytes
        with path.open("w+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._head()

    def show(self, arrays: Mapping[str, Any], step: int | None = None) -> bool:
        """Show arrays, if the budget allows it; whether it did."""
        with self._lock:
            now = time.monotonic()
            self._credit = min(self._rate, self._credit + (now - self._counted) * self._rate)
            self._counted = now
            if self._credit <= 0:
                self._left += 1
                self._head()
                return False
            data = self._packed(arrays, step)
            # What is owed is paid before the next one.
            self._credit -= len(data)
            self._put(data)
            return True

    def _packed(self, arrays: Mapping[str, Any], step: int | None) -> bytes:
        """Entries as packed columns, with as many rows as fit."""
        room = self._place_bytes - PLACE.size - 8192
        rows = max((len(array) for array in arrays.values() if getattr(array, "ndim", 0)), default=0)
        total = sum(int(getattr(array, "nbytes", 0)) for array in arrays.values())
        kept = rows if total <= room else max(1, int(rows * room / total))
        chosen = {
            name: as_array(array[:kept] if _has_rows(array, rows) else array)
            for name, array in arrays.items()
        }
        fitting = {name: array for name, array in chosen.items() if array.dtype.kind in "biufS"}
        left = sorted(set(arrays) - set(fitting))
        cuts = [f"rows 0:{kept} of {rows:,}"] if kept < rows else []
        cuts += [f"{', '.join(left)}: no numbers"] if left else []
        data = pack({"step": step, "cuts": cuts, "rows": rows}, fitting)
        if len(data) <= self._place_bytes - PLACE.size:
            return data
        return pack(
            {
                "step": step,
                "cuts": [f"all of {total:,} bytes: one row is larger than the ring"],
                "rows": rows,
            },
            {},
        )

    def _put(self, data: bytes) -> None:
        self._entries += 1
        at = HEADER_BYTES + (self._entries % PLACES) * self._place_bytes
        PLACE.pack_into(self._map, at, 0, 0.0, 0, 0)
        self._map[at + PLACE.size : at + PLACE.size + len(data)] = data
        PLACE.pack_into(self._map, at, self._entries, time.time(), len(data), crc32(data))

    def _head(self) -> None:
        HEADER.pack_into(self._map, 0, MAGIC, self._pid, PLACES, self._place_bytes, self._born, self._left)

    def close(self) -> None:
        """Take the ring away. The child of a fork leaves it to its parent."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._map.close()
            self.path.unlink(missing_ok=True)


#: Rings of this process by name, and where they are.
_rings: dict[tuple[int, str], Ring] = {}
_place: Path | None = None
_opening = threading.Lock()


def tap(name: str, arrays: Mapping[str, Any], *, step: int | None = None) -> bool:
    """Show arrays of a training loop under a name, as ``penstock view run:… --tap NAME`` finds them; whether the budget allowed it."""
    ring = _rings.get((os.getpid(), name))
    if ring is None:
        if not (name.replace("-", "").replace("_", "").isalnum() and len(name) <= _NAME_MAX):
            raise UsageError(
                f"a tap's name must be of letters, digits, - and _, got {name!r:.200}",
                hint='tap("logits", …)',
            )
        ring = _opened(name)
    return ring.show(arrays, step)


def _opened(name: str) -> Ring:
    key = (os.getpid(), name)
    with _opening:
        if key not in _rings:
            if len(_rings) >= _RINGS_MAX:
                raise UsageError(f"{_RINGS_MAX} taps are open, and {name!r} would be one more")
            _rings[key] = Ring((_place or home()) / f"{name}-{os.getpid()}{SUFFIX}")
            # What an orderly end leaves nobody has to sweep.
            atexit.register(_rings[key].close)
        return _rings[key]


def place_rings(folder: Path | None) -> None:
    """Where rings are made from now on; a run puts them into its directory."""
    global _place
    _place = folder


def as_array(value: Any) -> npt.NDArray[Any]:
    """Arrays of numpy, tensors of any device."""
    for method in ("detach", "cpu"):
        if hasattr(value, method):
            value = getattr(value, method)()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()
    return np.asarray(value)


def _has_rows(value: Any, rows: int) -> bool:
    return bool(getattr(value, "ndim", 0)) and len(value) == rows
