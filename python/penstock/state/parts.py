"""What one rank wrote, as a document, and how those of all ranks become a manifest."""

import time
from typing import Any

import msgspec

from penstock.errors import CheckpointDamaged, SaveFailed
from penstock.state.manifest import FORM, DataFile, Entries, Manifest, Piece, Tensor, check_cover


class Part(msgspec.Struct, frozen=True):
    """See the module's description. Pieces name files by their place in ``files``."""

    rank: int
    files: list[DataFile]
    tensors: dict[str, Tensor]
    values: dict[str, Any]
    entries: dict[str, Any]

    def encode(self) -> bytes:
        """The document."""
        return msgspec.json.encode(self, order="deterministic")


def read_part(name: str, data: bytes) -> Part:
    """A part from its bytes."""
    try:
        return msgspec.json.decode(data, type=Part)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise CheckpointDamaged(file=name, reason=str(reason)) from reason


def assemble(
    parts: list[Part], *, run: str, step: int, incarnation: int, parent: str, chunk_bytes: int
) -> Manifest:
    """The manifest of all parts; refused where they do not make whole tensors."""
    files: list[DataFile] = []
    numbers: dict[str, int] = {}
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for file in part.files:
            if file.name not in numbers:
                numbers[file.name] = len(files)
                files.append(file)
        for name, tensor in part.tensors.items():
            pieces = [
                msgspec.structs.replace(piece, file=numbers[part.files[piece.file].name])
                for piece in tensor.pieces
            ]
            known = tensors.setdefault(name, Tensor(tensor.dtype, tensor.shape, []))
            if (known.dtype, known.shape) != (tensor.dtype, tensor.shape):
                raise SaveFailed(
                    step=step,
                    reason=f"{name} is {known.dtype} {list(known.shape)} on one rank and {tensor.dtype} "
                    f"{list(tensor.shape)} on rank {part.rank}",
                )
            known.pieces.extend(pieces)
    for name, tensor in tensors.items():
        if reason := check_cover(name, tensor):
            raise SaveFailed(step=step, reason=reason, hint="do all ranks save the same tree?")
    return Manifest(
        form=FORM,
        run=run,
        step=step,
        incarnation=incarnation,
        parent=parent,
        made=time.time(),
        ranks=len(parts),
        chunk_bytes=chunk_bytes,
        files=files,
        tensors={name: _sorted(tensor) for name, tensor in sorted(tensors.items())},
        values=parts[0].values,
        entries=_entries([part.entries for part in parts]),
    )


def _sorted(tensor: Tensor) -> Tensor:
    def by_offset(piece: Piece) -> tuple[int, ...]:
        return piece.offset

    return msgspec.structs.replace(tensor, pieces=sorted(tensor.pieces, key=by_offset))


def _entries(of_ranks: list[dict[str, Any]]) -> Entries:
    """Entries that are equal on all ranks are kept once."""
    first = of_ranks[0]
    shared = {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in of_ranks[1:])
    }
    own = [{name: value for name, value in each.items() if name not in shared} for each in of_ranks]
    return Entries(shared, own if any(own) else [])
