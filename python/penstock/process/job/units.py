"""Sizes and time spans as people write them."""

import re

_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def byte_count(text: str) -> int | None:
    """``8G``, ``512MiB``, ``1000000``; nothing when it is no size. A letter alone is a power of 1024, as in Docker and Slurm."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        return None
    table = _BYTES if (match[3] or "").upper() == "B" else _BINARY
    return round(float(match[1]) * table[match[2].upper()])


def second_count(text: str) -> float | None:
    """``90``, ``1.5m``, ``2h``, ``7d``, ``250ms``; nothing when it is no time span."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|)", text.strip())
    return None if not match else float(match[1]) * _SECONDS[match[2]]
