"""Versions as commands show them."""

from typing import Any

import msgspec
import numpy as np

from penstock.cli.escape import harmless
from penstock.registry import Version

_TEXT_MAX = 120


def version_document(version: Version) -> dict[str, Any]:
    """A version as plain values, for ``--json``."""
    return {
        "address": version.address,
        "digest": version.digest,
        "format": version.manifest.format,
        "rows": version.rows,
        "bytes": version.bytes,
        "created": version.record.created,
        "about": msgspec.to_builtins(version.about),
        "roots": list(version.roots),
        "schema": msgspec.to_builtins(version.schema),
        "shards": msgspec.to_builtins(version.manifest.shards),
        "skipped": msgspec.to_builtins(version.manifest.skipped),
    }


def plain_row(value: Any) -> Any:
    """A row for JSON: bytes as their length and beginning, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): plain_row(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_row(item) for item in value]
    if isinstance(value, bytes | memoryview):
        return {"bytes": len(value), "begins": bytes(value[:16]).hex()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def short(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bytes | memoryview):
        return f"<{len(value):,} bytes>"
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} array {'x'.join(map(str, value.shape))}> {' '.join(map(str, value.ravel()[:12]))}"
    text = value if isinstance(value, str) else repr(value)
    beginning = harmless(text[:_TEXT_MAX].replace("\n", "⏎").replace("\t", "⇥"))
    return beginning if len(text) <= _TEXT_MAX else f"{beginning}… ({len(text):,} characters)"
