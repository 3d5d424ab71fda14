"""Records: values are walked where they are, once per batch, and a number goes out."""

from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import Buffer

def digest_rows(position: int, rows: list[bytes]) -> int:
    """The sum of the digests of rows (128 bits), given as the bytes that stand for them; the first is at ``position``."""

def digest_records(
    position: int, rows: list[Any], encoded: Callable[[Any], Iterable[Buffer]]
) -> tuple[int, int]:
    """The same for rows given as dicts, or as the bytes that stand for them; and the bytes of all values.

    ``encoded`` gives the parts that stand for a value that is no number, text, bytes, list or dict.
    """

def usable_row(row: Any, fresh: bool, usable: Callable[[Any], Any]) -> dict[str, Any] | None:
    """The row with usable values: itself if it is ``fresh`` and has no others, else with lists and dicts copied.

    ``usable`` makes something of values of other types. None when something is wrong with the row.
    """
