"""What the state room asks of those who hold tensors: which parts they hold, and how bytes get out and in.

The room itself knows no framework. Whoever holds tensors says what it *holds* (``Held``: a box of a tensor, in memory of
some kind) and how the bytes of that kind of memory are moved (``Mover``). Host memory has its mover here in the room;
``penstock.torch`` brings one for CUDA.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol

#: Bytes of one element, by the name that safetensors gives a type.
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangular part of a tensor."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Held:
    """The part of one tensor that this rank holds, and where its bytes are."""

    #: Path through the tree, joined by ``/``.
    name: str
    #: As safetensors writes it: ``F32``, ``BF16``, …
    dtype: str
    #: Of the whole tensor.
    shape: tuple[int, ...]
    #: What this rank holds of it.
    box: Box
    #: How its bytes are moved.
    mover: "Mover"
    #: What the mover needs to find them: an array, a tensor, …
    memory: Any
    #: This rank is the k-th of ``replicas`` ranks that hold exactly this box. Replicas are written once, shared among them.
    replica: int = 0
    replicas: int = 1
    #: Whether it may be written to before the next optimizer step (buffers): copied at once, not behind the scenes.
    restless: bool = False
    #: The rank whose contents count, where replicas differ by design (buffers that DDP takes from its first rank); None: all are equal.
    source: int | None = None
    #: Every rank has contents of its own under this name: never divided, never compared, restored on the same rank of the same layout
    #: and refused on another one. Whoever holds such tensors only sets this; see ``Manifest.own`` for how they are kept.
    per_rank: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the box."""
        return self.box.elements * ITEM_BYTES[self.dtype]


class Copy(NamedTuple):
    """Some bytes of a held box (in C order), and the host memory on the other side."""

    held: Held
    #: First byte of the box.
    start: int
    #: Host memory of exactly the bytes that are moved; writable when bytes are taken out of the tensor.
    host: memoryview


class Sample(NamedTuple):
    """Some bytes of a held box at even distances: ``rows`` times ``width`` bytes, each ``pitch`` bytes after the one before."""

    held: Held
    rows: int
    width: int
    pitch: int
    #: Host memory for ``rows * width`` bytes.
    host: memoryview


class Copying(Protocol):
    """Copies under way."""

    def guard(self) -> None:
        """Let nothing that is done to the tensors after this overtake the copies. Cheap when they are done."""

    def wait(self) -> None:
        """Return when all bytes have arrived."""


class Mover(Protocol):
    """Moves bytes between one kind of memory and host memory."""

    def prepare(self, arena: memoryview) -> None:
        """Make host memory fast to copy to (pin it). Called once per arena, from a thread of the room; may take seconds."""

    def release(self, arena: memoryview) -> None:
        """Undo ``prepare``, before the arena goes away."""

    def take(self, copies: list[Copy]) -> Copying:
        """Begin to copy from tensors to host memory, and return as soon as that is safe."""

    def put(self, copies: list[Copy]) -> Copying:
        """Begin to copy from host memory into tensors."""


class Sampler(Mover, Protocol):
    """A mover that can also take samples, so that replicas are compared without copying all of each. Not every mover can."""

    def sample(self, samples: list[Sample]) -> Copying:
        """Begin to copy samples to host memory, under the same rules as ``take``."""


class Tree(Protocol):
    """A state that knows its own parts, as ``penstock.torch.state`` makes it. Plain nested dicts and lists are trees too.

    A tree that has yet to make tensors before it can be loaded (the moments of a fresh optimizer) also has ``room_for(tensors, values)``, which
    is given names with types and shapes of what was saved and returns what is held then. A tree whose ranks can talk to each other also has
    ``exchange(document)``, which every rank calls and which returns what each rank gave, in the order of ranks; others meet in the store.
    """

    #: Which of how many ranks holds this part of the state.
    rank: int
    ranks: int

    def held(self) -> list[Held]:
        """Every tensor, as far as this rank holds it. Ranks may have names of their own."""

    def values(self) -> dict[str, Any]:
        """Everything that is not a tensor, by name: numbers, texts, None, lists and dicts of them."""

    def load_values(self, values: dict[str, Any]) -> None:
        """Take values back."""

    def loaded(self) -> None:
        """All tensors were filled."""

    def entries(self) -> dict[str, Any]:
        """Documents that belong to this rank and travel with the state (RNG), JSON-able."""

    def load_entries(self, entries: dict[str, Any]) -> None:
        """Take entries back; those of other origin may be among them and are left alone."""

    def on_save(self, copying: Copying) -> None:
        """A save has begun: see to it that ``copying.guard()`` is called before the tensors are written to again."""
