"""What a checkpoint consists of, as a document: tensors, their pieces, where those are, and what they hash to.

``docs/spec/checkpoint.md`` describes the form. A manifest is content-addressed: what its digest says is what was committed.
"""

from math import prod
from typing import Any

import msgspec

from penstock._rust import digest
from penstock.errors import CheckpointDamaged, ManifestNewer
from penstock.state.contract import ITEM_BYTES, Box

FORM = 1
#: Of a manifest with tensors or values that ranks keep to themselves: an older Penstock would load those of the first rank everywhere.
FORM_OWN = 2
#: Chunks are small enough that a part of a piece costs little more than its bytes, and few enough to be listed.
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 256 << 10, 16 << 20
_CHUNKS = 1 << 14
#: Hexadecimal digits of one chunk's hash.
HASH_DIGITS = 32


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """A range of a data file that another one holds too; see ``duplicates``."""

    #: First byte in the file, and how many.
    start: int
    bytes: int
    #: The other file, its length, and the first byte there.
    name: str
    file_bytes: int
    at: int


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A file that pieces are in."""

    #: Below the place of the checkpoints, or a whole URL when it belongs to another run.
    name: str
    bytes: int
    #: What of it is elsewhere too.
    duplicates: tuple[Duplicate, ...] = ()


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A box of a tensor, at its place in a file."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    #: Index into the manifest's files.
    file: int
    #: First byte in the file.
    start: int
    #: Hashes of its chunks, one after another.
    hashes: str

    @property
    def box(self) -> Box:
        """Which part of the tensor it is."""
        return Box(self.offset, self.shape)


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A logical tensor."""

    dtype: str
    shape: tuple[int, ...]
    pieces: list[Piece]

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def identity(self) -> str:
        """Equal for equal contents in equal pieces."""
        parts = sorted((piece.offset, piece.shape, piece.hashes) for piece in self.pieces)
        return digest(msgspec.json.encode((self.dtype, self.shape, parts)))


class Entries(msgspec.Struct, frozen=True):
    """Documents beside the tree."""

    #: Equal on all ranks.
    shared: dict[str, Any]
    #: Those of each rank.
    ranks: list[dict[str, Any]]

    def of(self, rank: int) -> dict[str, Any]:
        """What a rank finds: the shared ones and its own, if it had any."""
        return {**self.shared, **(self.ranks[rank] if rank < len(self.ranks) else {})}


class Own(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank keeps to itself, because it is not the same on all ranks.

    Of replicas that differ, the first rank that has one keeps it in the manifest's ``tensors`` (or ``values``), as if all were equal, and each
    other rank here. Tensors that a tree holds with ``Held.per_rank`` are here alone, on every rank, with the boxes that the rank has.
    """

    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    #: Some of the boxes that this rank held of tensors that are spread over ranks, by name: they tell one layout from another.
    boxes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}


class Partial(msgspec.Struct, frozen=True):
    """Names of tensors and values that not all ranks have (stages of a pipeline), and who has them."""

    ranks: tuple[int, ...]
    names: list[str]


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a checkpoint consists of; its digest stands in the commit."""

    form: int
    run: str
    step: int
    incarnation: int
    parent: str
    made: float
    ranks: int
    chunk_bytes: int
    files: list[DataFile]
    tensors: dict[str, Tensor]
    values: dict[str, Any]
    entries: Entries
    #: One for each rank, or none at all.
    own: list[Own] = []
    partial: list[Partial] = []

    def encode(self) -> bytes:
        """The document; equal manifests give equal bytes."""
        return msgspec.json.encode(self, order="deterministic")

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors.values()) + sum(
            piece.box.elements * ITEM_BYTES[tensor.dtype]
            for own in self.own
            for tensor in own.tensors.values()
            for piece in tensor.pieces
        )

    def everything(self) -> dict[str, Tensor]:
        """Every tensor, those that ranks keep to themselves too, by names for people."""
        own = {
            f"{name} (rank {rank})": tensor
            for rank, part in enumerate(self.own)
            for name, tensor in part.tensors.items()
        }
        return {**self.tensors, **own}

    @property
    def kept_apart(self) -> list[str]:
        """Names of tensors and values that are not the same on all ranks."""
        return sorted({name for own in self.own for name in (*own.tensors, *own.values)})


class _Form(msgspec.Struct):
    form: int


def manifest_name(manifest: str) -> str:
    """Where the manifest of a digest is kept."""
    return f"manifests/{manifest.removeprefix('b3:')}.json"


def read_manifest(name: str, data: bytes, expected: str) -> Manifest:
    """A manifest from its bytes, checked against its digest and in itself."""
    if digest(data) != expected:
        raise CheckpointDamaged(file=name, reason=f"its digest is not {expected}")
    try:
        form = msgspec.json.decode(data, type=_Form).form
        if form not in (FORM, FORM_OWN):
            raise ManifestNewer(name=name, found=form, known=FORM_OWN)
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise CheckpointDamaged(file=name, reason=str(reason)) from reason
    return manifest


def chunk_bytes_for(state_bytes: int) -> int:
    """The size of chunks for a state; a power of two, and the same on all ranks."""
    wanted = 1 << max(0, (state_bytes // _CHUNKS).bit_length() - 1)
    return min(max(wanted, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)


def chunk_count(bytes_: int, chunk_bytes: int) -> int:
    """How many chunks a piece has; an empty one has none."""
    return -(-bytes_ // chunk_bytes)


def check_cover(name: str, tensor: Tensor) -> str:
    """Why the pieces of a tensor do not cover it exactly once, or nothing."""
    if tensor.dtype not in ITEM_BYTES:
        return f"{name}: type {tensor.dtype} is not known"
    covered = 0
    for piece in tensor.pieces:
        if len(piece.offset) != len(tensor.shape) or len(piece.shape) != len(tensor.shape):
            return f"{name}: a piece has {len(piece.shape)} dimensions, the tensor {len(tensor.shape)}"
        for first, length, whole in zip(piece.offset, piece.shape, tensor.shape, strict=True):
            if first < 0 or length < 0 or first + length > whole:
                return f"{name}: a piece at {piece.offset} of {piece.shape} is outside of {tensor.shape}"
        covered += prod(piece.shape)
    if covered != prod(tensor.shape):
        return f"{name}: pieces have {covered} of {prod(tensor.shape)} elements"
    overlap = _overlap([piece.box for piece in tensor.pieces if piece.box.elements])
    return f"{name}: pieces at {overlap[0]} and {overlap[1]} overlap" if overlap else ""


def _overlap(boxes: list[Box]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two boxes that overlap. Sorted by their first dimension, only neighbours that reach into each other are compared."""
    boxes = sorted(boxes, key=lambda box: box.offset)
    reaching: list[Box] = []
    for box in boxes:
        reaching = [
            other for other in reaching if not box.offset or other.offset[0] + other.shape[0] > box.offset[0]
        ]
        for other in reaching:
            if all(
                a < b + m and b < a + n
                for a, n, b, m in zip(box.offset, box.shape, other.offset, other.shape, strict=True)
            ):
                return other.offset, box.offset
        reaching.append(box)
    return None
