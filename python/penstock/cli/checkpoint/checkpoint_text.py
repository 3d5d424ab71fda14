"""Checkpoints as commands show them."""

import json
from datetime import UTC, datetime
from typing import Any

from penstock.errors import CheckpointDamaged
from penstock.report.quantities import size
from penstock.state.checkpoint import Checkpoint, checkpoint_of
from penstock.state.contract import ITEM_BYTES
from penstock.state.log.history import Committed
from penstock.state.manifest import Tensor
from penstock.store import Store

_TEXT_MAX = 100


def list_document(committed: Committed, store: Store) -> dict[str, Any]:
    """A checkpoint as a line of a list. One whose manifest cannot be read is shown with the reason."""
    checkpoint = checkpoint_of(committed, store)
    document = {**checkpoint.to_json(), "pins": sorted(committed.pins), "files": None, "new_bytes": None}
    try:
        manifest = checkpoint.manifest
    except CheckpointDamaged as problem:
        return {**document, "damage": document["damage"] or str(problem)}
    # Files of its own save; the others were there before.
    commit = committed.commit
    own = f"data/{commit.incarnation}/{commit.step}-{commit.attempt}/"
    fresh = {
        number
        for number, file in enumerate(manifest.files)
        if file.name.startswith(own) or f"/{own}" in file.name
    }
    new_bytes = sum(
        piece.box.elements * ITEM_BYTES[tensor.dtype]
        for tensor in manifest.tensors.values()
        for piece in tensor.pieces
        if piece.file in fresh
    )
    return {**document, "files": len(manifest.files), "new_bytes": new_bytes}


def tensor_document(name: str, tensor: Tensor) -> dict[str, Any]:
    """A tensor as plain values."""
    return {
        "name": name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "bytes": tensor.bytes,
        "pieces": len(tensor.pieces),
    }


def when(seconds: float) -> str:
    """A moment as people read it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def short(value: Any) -> str:
    """A value of a manifest on one line; long ones by what they consist of."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text) <= _TEXT_MAX:
        return text
    inner = value.get("$dict", value) if isinstance(value, dict) else value
    if isinstance(inner, dict):
        keys = ", ".join(list(inner)[:6])
        return f"{{{keys}{', …' if len(inner) > 6 else ''}}} ({size(len(text))})"
    if isinstance(inner, list):
        return f"[{len(inner)} items] ({size(len(text))})"
    return f"{text[:_TEXT_MAX]}… ({size(len(text))})"


def figure(number: float | int | None) -> str:
    """A number in a table."""
    return "" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:.4g}"


def titled(checkpoint: Checkpoint) -> str:
    """What a checkpoint is called in words."""
    return f"step {checkpoint.step} (number {checkpoint.number})"
