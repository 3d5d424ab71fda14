"""Functions that tests use as maps; they stand in a module, as maps must."""

import random
from typing import Any


def louder(row: dict[str, Any]) -> dict[str, Any]:
    """Adds 500 to every number of a text."""
    return row | {"text": " ".join(str(int(word) + 500) for word in row["text"].split())}


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """Says which rows are even."""
    return row | {"even": row["id"] % 2 == 0}


def fragile(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on every tenth row."""
    if row["id"] % 10 == 3:
        raise ValueError(f"nothing can be made of {row['id']}")
    return row


def forgetful(row: dict[str, Any]) -> None:
    """Returns nothing, which is a mistake."""


def scrambled(row: dict[str, Any], draws: random.Random) -> dict[str, Any]:
    """Draws at random."""
    return row | {"text": draws.choice(["1", "2"])}
