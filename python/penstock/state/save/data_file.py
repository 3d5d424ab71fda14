"""Data files: plain safetensors, with a header that is padded so that tensors begin at a page."""

from typing import Any

import msgspec

from penstock.errors import CheckpointDamaged
from penstock.state.contract import Box

_PAGE = 4096
#: As the safetensors library has it.
_HEADER_MAX = 100_000_000


def piece_key(name: str, shape: tuple[int, ...], box: Box) -> str:
    """What a piece is called in its file: the tensor's name, with its offset unless it is the whole."""
    return name if box.shape == shape else f"{name}@{','.join(map(str, box.offset))}"


def encode_header(pieces: list[tuple[str, str, tuple[int, ...], int]], stamp: dict[str, str]) -> bytes:
    """The beginning of a file whose pieces (key, type, shape, bytes) follow one another."""
    document: dict[str, Any] = {"__metadata__": stamp}
    end = 0
    for key, dtype, shape, length in pieces:
        document[key] = {"dtype": dtype, "shape": shape, "data_offsets": (end, end + length)}
        end += length
    text = msgspec.json.encode(document)
    text += b" " * (-(len(text) + 8) % _PAGE)
    return len(text).to_bytes(8, "little") + text


def decode_header(name: str, head: bytes, more: Any) -> tuple[dict[str, Any], dict[str, str], int]:
    """Tensors, stamp, and where data begin; ``more(start, length)`` reads on where the given bytes do not suffice."""
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > _HEADER_MAX:
        raise CheckpointDamaged(file=name, reason="it is not a safetensors file")
    text = head[8 : 8 + length]
    if len(text) < length:
        text += more(8 + len(text), length - len(text))
    try:
        document = msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise CheckpointDamaged(file=name, reason=f"its header cannot be read: {reason}") from reason
    stamp = document.pop("__metadata__", {})
    return document, stamp, 8 + length
