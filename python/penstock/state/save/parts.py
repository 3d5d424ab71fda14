"""What one rank wrote, as a document, and how those of all ranks become a manifest."""

import time
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import CheckpointDamaged, SaveFailed
from penstock.state.contract import Box
from penstock.state.manifest import (
    FORM,
    FORM_OWN,
    DataFile,
    Entries,
    Manifest,
    Own,
    Partial,
    Piece,
    Tensor,
    check_cover,
)
from penstock.state.ranks.division import Division
from penstock.state.ranks.witnesses import differing


class Part(msgspec.Struct, frozen=True):
    """What one rank wrote of a save. Pieces name files by their place in ``files``."""

    rank: int
    files: list[DataFile]
    tensors: dict[str, Tensor]
    values: dict[str, Any]
    entries: dict[str, Any]
    #: Tensors that this rank keeps to itself; a name that is here as well as in ``tensors`` counts here.
    own: dict[str, Tensor] = {}
    #: Which division of the work it followed; empty where there is one rank.
    division: str = ""
    #: What it says of its replicas, see ``witnesses``.
    checks: dict[str, str] = {}

    def encode(self) -> bytes:
        """The document."""
        return msgspec.json.encode(self, order="deterministic")


def read_part(name: str, data: bytes) -> Part:
    """A part from its bytes."""
    try:
        return msgspec.json.decode(data, type=Part)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise CheckpointDamaged(file=name, reason=str(reason)) from reason


@dataclass(frozen=True, slots=True)
class Origin:
    """What a manifest says of itself."""

    run: str
    step: int
    incarnation: int
    parent: str


def assemble(parts: list[Part], origin: Origin, division: Division | None, chunk_bytes: int) -> Manifest:
    """The manifest of all parts; refused where they do not make whole tensors, or followed different divisions."""
    _check_division(parts, division, origin.step)
    files: list[DataFile] = []
    numbers: dict[str, int] = {}
    for file in (file for part in parts for file in part.files):
        if file.name not in numbers:
            numbers[file.name] = len(files)
            files.append(file)
    apart = {name for part in parts for name in part.own}
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for name, tensor in _numbered(part, part.tensors, numbers).items():
            if name not in apart:
                _join(tensors, name, tensor, part.rank, origin.step)
    own = [_numbered(part, part.own, numbers) for part in parts]
    tensors |= _first_of(own, division)
    values, own_values = _values(parts, division)
    for name, tensor in tensors.items():
        if reason := check_cover(name, tensor):
            raise SaveFailed(step=origin.step, reason=reason, hint="do all ranks save the same tree?")
    is_apart = any(own) or any(own_values)
    return Manifest(
        form=FORM_OWN if is_apart else FORM,
        run=origin.run,
        step=origin.step,
        incarnation=origin.incarnation,
        parent=origin.parent,
        made=time.time(),
        ranks=len(parts),
        chunk_bytes=chunk_bytes,
        files=files,
        tensors={name: _sorted(tensor) for name, tensor in sorted(tensors.items())},
        values=values,
        entries=_entries([part.entries for part in parts]),
        own=_owned(own, own_values, division) if is_apart else [],
        partial=_partial(parts, division),
    )


def names_apart(parts: list[Part], division: Division | None, step: int) -> list[str]:
    """Small replicas that are not equal and that not every rank has written for itself yet; ``RanksDiffer`` for a large one."""
    if division is None or any(part.division != division.id for part in parts):
        return []
    names = {*differing(division, [part.checks for part in parts], step)}
    names |= {name for part in parts for name in part.own if name in division.holders}
    return sorted(
        name for name in names if any(name not in parts[rank].own for rank in division.witnesses(name))
    )


def _check_division(parts: list[Part], division: Division | None, step: int) -> None:
    expected = "" if division is None else division.id
    for part in parts:
        if part.division != expected:
            raise SaveFailed(
                step=step,
                reason=f"ranks {parts[0].rank} and {part.rank} divided the work differently, because what ranks hold has changed",
                hint="let all ranks add and drop tensors before the same save; save again",
            )


def _numbered(part: Part, tensors: dict[str, Tensor], numbers: dict[str, int]) -> dict[str, Tensor]:
    """Tensors of a part, with files as the manifest numbers them."""
    return {
        name: msgspec.structs.replace(
            tensor,
            pieces=[
                msgspec.structs.replace(piece, file=numbers[part.files[piece.file].name])
                for piece in tensor.pieces
            ],
        )
        for name, tensor in tensors.items()
    }


def _join(tensors: dict[str, Tensor], name: str, tensor: Tensor, rank: int, step: int) -> None:
    known = tensors.setdefault(name, Tensor(tensor.dtype, tensor.shape, []))
    if (known.dtype, known.shape) != (tensor.dtype, tensor.shape):
        raise SaveFailed(
            step=step,
            reason=f"{name} is {known.dtype} {list(known.shape)} on one rank and {tensor.dtype} "
            f"{list(tensor.shape)} on rank {rank}",
        )
    known.pieces.extend(tensor.pieces)


def _first_of(own: list[dict[str, Tensor]], division: Division | None) -> dict[str, Tensor]:
    """Of replicas that differ, those of the first ranks, box by box; they are taken out of ``own``, and so is whatever equals them.

    Tensors that were held as ``per_rank`` are no replicas, and stay.
    """
    first: dict[str, dict[Box, Piece]] = {}
    kinds: dict[str, Tensor] = {}
    for of_rank in own:
        for name in [name for name in of_rank if division is not None and name in division.holders]:
            kinds.setdefault(name, of_rank[name])
            boxes = first.setdefault(name, {})
            known = [boxes.setdefault(piece.box, piece) for piece in of_rank[name].pieces]
            if [piece.hashes for piece in known] == [piece.hashes for piece in of_rank[name].pieces]:
                del of_rank[name]
    return {
        name: msgspec.structs.replace(kinds[name], pieces=list(boxes.values()))
        for name, boxes in first.items()
    }


def _values(parts: list[Part], division: Division | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Values of the first rank that has them, and those of other ranks that are not equal."""
    values: dict[str, Any] = {}
    encoded: dict[str, bytes] = {}
    own: list[dict[str, Any]] = [{} for _ in parts]
    keeps = division is not None and division.mode != "first"
    for at, part in enumerate(parts):
        for name, value in part.values.items():
            # As text, because Python calls 1, 1.0 and True equal.
            text = msgspec.json.encode(value, order="deterministic")
            if name not in values:
                values[name], encoded[name] = value, text
            elif keeps and encoded[name] != text:
                own[at][name] = value
    return values, own


def _owned(
    tensors: list[dict[str, Tensor]], values: list[dict[str, Any]], division: Division | None
) -> list[Own]:
    return [
        Own(dict(sorted(mine.items())), others, {} if division is None else division.boxes_of(rank))
        for rank, (mine, others) in enumerate(zip(tensors, values, strict=True))
    ]


def _partial(parts: list[Part], division: Division | None) -> list[Partial]:
    """Names that not all ranks have."""
    if division is None:
        return []
    by_ranks = division.partial()
    having: dict[str, list[int]] = {}
    for part in parts:
        for name in part.values:
            having.setdefault(name, []).append(part.rank)
    for name, ranks in having.items():
        if len(ranks) < len(parts):
            by_ranks.setdefault(tuple(ranks), []).append(name)
    return [Partial(ranks, sorted(names)) for ranks, names in sorted(by_ranks.items())]


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
    own = [{name: value for name, value in entries.items() if name not in shared} for entries in of_ranks]
    return Entries(shared, own if any(own) else [])
