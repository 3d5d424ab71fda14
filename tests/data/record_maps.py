"""Functions that tests of records use as maps; they stand in a module, as maps must."""

import io
import threading
from typing import Any

import numpy as np
from PIL import Image


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    """The picture as an array."""
    pixels = np.asarray(Image.open(io.BytesIO(row["png"])))
    return {"key": row["__key__"], "image": pixels, "label": row["json"]["label"]}


def fragile(row: dict[str, Any]) -> dict[str, Any]:
    """Fails on every tenth note."""
    if row["id"] % 10 == 3:
        raise ValueError(f"nothing can be made of {row['id']}")
    return row


def shifted(row: dict[str, Any], draws: np.random.Generator) -> dict[str, Any]:
    """Adds noise to what was seen."""
    return row | {"obs": row["obs"] + draws.normal(size=row["obs"].shape).astype(np.float32)}


def tossed(row: dict[str, Any], draws: np.random.Generator) -> dict[str, Any]:
    """Tosses a coin."""
    return row | {"coin": bool(draws.integers(2)), "draw": draws.random()}


def stamped(row: dict[str, Any], draws: np.random.Generator) -> dict[str, Any]:
    """Adds the generator's first bits, which no release of numpy changes."""
    bits: Any = draws.bit_generator
    return row | {"bits": int(bits.random_raw()) >> 1}


def ragged(row: dict[str, Any]) -> dict[str, Any]:
    """Arrays of as many items as the number says."""
    return {
        "id": row["id"],
        "items": np.arange(row["id"] % 3),
        "pair": np.array([row["id"], 1], dtype=np.int16),
    }


def named_valid(row: dict[str, Any]) -> dict[str, Any]:
    """A field that batches have themselves."""
    return row | {"valid": 1}


def shapeless(row: dict[str, Any]) -> dict[str, Any]:
    """A value that no record can hold."""
    return row | {"thing": object()}


def unlike(row: dict[str, Any]) -> list[Any]:
    """No row."""
    return list(row)


#: Closed by whoever wants rows to be waited for.
gate = threading.Event()
gate.set()


def held(row: dict[str, Any]) -> dict[str, Any]:
    """Waits at the gate."""
    assert gate.wait(60)
    return row


def counted(row: dict[str, Any]) -> dict[str, Any]:
    """How many fields a row has."""
    return {"count": len(row)}


#: Samples that were seen by ``fails_first``, each of which fails once.
seen: set[int] = set()


def fails_first(row: dict[str, Any]) -> dict[str, Any]:
    """Fails for every sample, and for none a second time."""
    if row["id"] not in seen:
        seen.add(row["id"])
        raise ConnectionError(f"{row['id']} is not there yet")
    return row
