"""WebDataset archives: one group of members per row, named by a running key.

A member's extension says what it holds, so a value stands under a name that gives it back as it is: bytes under the field's
name (or NAME.bin, if that name means something else), an array as NAME.npy, and everything else together as ``json``. Rows
that came from an archive keep their keys and members. A null is a member that is not there; an empty value is an empty one.
"""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.formats.contract import FieldKind, Row
from penstock.formats.export.value_limits import Refusals, json_flaw, json_text, word_for
from penstock.formats.samples.webdataset import EXTENSIONS, KEY

_JSON = "json"


class WebDatasetWriter:
    """Writes rows as groups of members into tar archives."""

    format = "webdataset"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.tar"
        self._staged = folder / f".{name}.tar.part"
        self._tar = tarfile.open(self._staged, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by finish
        #: Fields whose null is a member that is not there.
        self._apart = {field.name for field in schema if field.kind in ("bytes", "array")}
        self._refusals = Refusals(str(self._final), "WebDataset")

    def add(self, rows: list[Row], first: int) -> None:
        """One group of members per row."""
        for number, row in enumerate(rows, start=first):
            key = self._key(row, number)
            members = self._kept(row, number) if KEY in row else self._new_members(row, number)
            if not members:
                raise self._refusals.refuse(number, next(iter(row), KEY), "no value but nulls")
            for name, data in members:
                member = tarfile.TarInfo(f"{key}.{name}")
                member.size = len(data)
                self._tar.addfile(member, io.BytesIO(data))

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._tar.close()
        self._staged.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Write the end of the archive."""
        self._tar.close()
        return [(self._staged, self._final)]

    def _key(self, row: Row, number: int) -> str:
        key = row.get(KEY, f"{number:012d}")
        last = str(key).rpartition("/")[2]
        if not isinstance(key, str) or not last or "." in last or "\0" in key:
            raise self._refusals.refuse(number, KEY, f"the key {key!r}")
        return key

    def _kept(self, row: Row, number: int) -> list[tuple[str, bytes]]:
        """Members of a row that came from an archive: each must be what its extension says."""
        members = []
        for name, value in row.items():
            holder = EXTENSIONS.get(name.rpartition(".")[2], "bytes")
            if name == KEY or (value is None and holder != _JSON):
                continue
            self._refusals.demand(number, name, _name_flaw(name) or _flaw(value, holder))
            members.append((name, _encode(value, holder)))
        return members

    def _new_members(self, row: Row, number: int) -> list[tuple[str, bytes]]:
        """Members of any other row."""
        members, together = [], {}
        for name, value in row.items():
            if value is None and name in self._apart:
                continue
            if not isinstance(value, bytes | memoryview | np.ndarray):
                self._refusals.demand(number, name, json_flaw(value))
                together[name] = value
                continue
            holder = "npy" if isinstance(value, np.ndarray) else "bytes"
            self._refusals.demand(number, name, _name_flaw(name) or _flaw(value, holder))
            says = EXTENSIONS.get(name.rpartition(".")[2], "bytes")
            ending = "" if says == holder else ".npy" if holder == "npy" else ".bin"
            members.append((name + ending, _encode(value, holder)))
        if together or not members:
            members.insert(0, (_JSON, json_text(together)))
        return members


def _name_flaw(name: str) -> str | None:
    """Why a field cannot be the extension of a member: it is read in lower case, and up to its end."""
    usable = name == name.lower() and "/" not in name and "\0" not in name and not name.startswith("__")
    return None if usable and name else f"the name {name!r}"


def _flaw(value: Any, holder: str) -> str | None:
    if holder == _JSON:
        return json_flaw(value)
    if holder == "npy":
        is_array = isinstance(value, np.ndarray)
        return None if is_array and not value.dtype.hasobject else word_for(value)
    if holder == "int":
        return None if isinstance(value, int) and not isinstance(value, bool) else word_for(value)
    return None if isinstance(value, str if holder == "text" else bytes | memoryview) else word_for(value)


def _encode(value: Any, holder: str) -> bytes:
    if holder == _JSON:
        return json_text(value)
    if holder == "npy":
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return buffer.getvalue()
    return str(value).encode() if holder in ("int", "text") else bytes(value)
