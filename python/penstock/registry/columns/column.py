"""Columns: one value per row of a version, kept by what produced them.

A column is keyed by the version's digest, by what was measured (a function with its parameters and its library's version)
and, for one that covers only some rows, by which. So it can be shared by everybody and is never stale.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.errors import ManifestDamaged, ObjectMissing
from penstock.store import Store
from penstock.store.hostcache import read_object

FORM = 1
#: Parts whose values are fetched at once.
_FETCHERS = 16
#: The field of a recipe that decides what becomes of special tokens in text, and what became of them.
SPECIAL_IN_TEXT = "special_in_text"
_BECAME = {
    "plain": f'with {SPECIAL_IN_TEXT} = "plain" they are text; if the text is a rendered chat, set "token"',
    "token": f'with {SPECIAL_IN_TEXT} = "token" they are control tokens; "plain" takes them as text',
}
#: Ranges of rows: first row, and the row after the last.
Pieces = Sequence[tuple[int, int]]


class Undecodable(msgspec.Struct, frozen=True, array_like=True):
    """A row that nothing could be made of: it counts as empty."""

    row: int
    reason: str


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """The column of one piece: of a shard, unless other pieces were asked for."""

    rows: int
    #: Digest of the values, an object of the registry.
    values: str
    #: Digest of the file of the first payload among the derived data, if there is one.
    payload: str = ""
    #: Files of further payloads, by name.
    payloads: dict[str, str] = {}
    #: Rows that nothing could be made of, by their numbers in the version.
    undecodable: list[Undecodable] = []
    #: How many rows spell a special token in their text.
    spelled: int = 0


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished column."""

    form: int
    version: str
    name: str
    dtype: str
    measure: dict[str, str]
    parts: list[Part]
    #: Digest of the derived version that holds the first payload.
    payload_version: str = ""
    #: Digests of the derived versions of further payloads, by name.
    payload_versions: dict[str, str] = {}
    #: The rows that it covers, if not all.
    pieces: list[tuple[int, int]] = []
    #: Digest of the values of all parts one after another, an object of the registry, where there are several parts.
    values: str = ""
    #: What users should know of what was measured with.
    notes: list[str] = []

    @property
    def key(self) -> str:
        """What the column is kept under."""
        return column_key(self.version, self.measure, self.pieces)

    @property
    def undecodable(self) -> list[Undecodable]:
        """Rows that nothing could be made of."""
        return [entry for part in self.parts for entry in part.undecodable]

    @property
    def spelled(self) -> int:
        """How many rows spell a special token in their text."""
        return sum(part.spelled for part in self.parts)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What users should know of it, in words."""
        if not self.spelled:
            return tuple(self.notes)
        # Ranks took text as text before there was a choice, other tokenizers did not.
        ranks = self.measure.get("kind") == "ranks" and self.measure.get("special") == "false"
        became = _BECAME[self.measure.get(SPECIAL_IN_TEXT, "plain" if ranks else "token")]
        rows = "row spells" if self.spelled == 1 else "rows spell"
        return (*self.notes, f"{self.spelled:,} {rows} special tokens: {became}")


def column_key(version: str, measure: dict[str, str], pieces: Pieces = ()) -> str:
    """The name of a column: a digest of the version, of what is measured, and of the rows if they are not all."""
    parts = (version, measure, pieces) if pieces else (version, measure)
    return digest(msgspec.json.encode(parts, order="deterministic")).removeprefix("b3:")


def find_column(store: Store, key: str) -> Column | None:
    """A finished column, if there is one."""
    name = f"columns/{key}/column.json"
    try:
        return msgspec.json.decode(store.get(name), type=Column)
    except ObjectMissing:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise ManifestDamaged(name=name, reason=str(reason)) from reason


def columns_of(store: Store, version: str) -> list[Column]:
    """The finished columns of all rows of a version, by name and key."""
    keys = [
        entry.name.split("/")[1] for entry in store.entries("columns") if entry.name.endswith("/column.json")
    ]
    columns = [column for key in keys if (column := find_column(store, key)) is not None]
    finished = [column for column in columns if column.version == version and not column.pieces]
    return sorted(finished, key=lambda column: (column.name, column.key))


def values_of(store: Store, column: Column) -> "np.ndarray[Any, Any]":
    """All values of a column in row order, checked against their digests: one object, or those of the parts."""
    digests = [column.values] if column.values else [part.values for part in column.parts]
    if not digests:
        return np.zeros(0, dtype=column.dtype)
    with ThreadPoolExecutor(min(_FETCHERS, len(digests)), thread_name_prefix="penstock-values") as pool:
        chunks = list(pool.map(lambda name: _values(store, column, name), digests))
    return np.concatenate([np.frombuffer(data, dtype=column.dtype) for data in chunks])


def with_values(store: Store, column: Column) -> Column:
    """The same with all values as one object, so that a column of a thousand parts is read with one request."""
    if len(column.parts) < 2:
        return column
    data = values_of(store, column).tobytes()
    name = digest(data)
    store.put_if_absent(f"objects/{name.removeprefix('b3:')}", data)
    return msgspec.structs.replace(column, values=name)


def _values(store: Store, column: Column, name: str) -> bytes:
    data = read_object(store, f"objects/{name.removeprefix('b3:')}", name)
    if digest(data) != name:
        raise ManifestDamaged(name=f"column {column.name}", reason="its values are not what was measured")
    return data


def payload_name(dataset: str, column: Column, payload: str = "") -> str:
    """The dataset of a payload: beside the version's own, told apart by what was measured."""
    identity = digest(msgspec.json.encode(column.measure, order="deterministic"))[3:11]
    # Those of pieces stay apart, so that the newest version of the plain name is one with all rows.
    return f"{dataset}/{payload or column.name}-{identity}{'/pieces' if column.pieces else ''}"
