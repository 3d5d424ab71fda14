"""What an import asks of those who know a foreign form: which boxes of which tensors there are, and how to get their bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.manifest import Entries


@dataclass(frozen=True, slots=True)
class Incoming:
    """A box of a tensor, as the source holds it."""

    name: str
    #: As safetensors writes it.
    dtype: str
    shape: tuple[int, ...]
    box: Box
    #: What the source needs to find it.
    where: Any

    @property
    def bytes(self) -> int:
        """Bytes of the box."""
        return self.box.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Some elements of an incoming box that follow one another in C order, and the memory that wants them."""

    incoming: Incoming
    #: Which elements of the tensor.
    box: Box
    #: Their first byte in the incoming box.
    start: int
    memory: memoryview


class Source(Protocol):
    """A state in some other form. Nothing large is read before it is asked for."""

    #: What is not a tensor, by name, as manifests hold it.
    values: dict[str, Any]
    entries: Entries
    #: What could not be understood and is left out, with the reason.
    left_out: list[str]

    def incoming(self) -> list[Incoming]:
        """Every tensor, in the order in which they are cheapest to read."""

    def fill(self, wanted: Sequence[Wanted]) -> None:
        """Get bytes."""
