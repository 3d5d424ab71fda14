"""Sharing: bytes made for other processes of the host, and theirs."""

from typing import Self, TypeAlias, final

from typing_extensions import Buffer

#: What it is; steps made here, by others, alone; moves; members and bytes of a reader; why it reads alone.
SharingValues: TypeAlias = tuple[str, int, int, int, int, int, int, str | None]

@final
class Exchange:
    """Steps that Python finishes, each finished once by all processes that read the same lane."""

    def __new__(cls, key: str, budget_bytes: int) -> Self: ...
    def ask(self, step: int) -> SharedBytes | StepClaim | None:
        """What another made of a step, the right to make it for everybody, or None to make it alone."""
    def told(self) -> SharingValues:
        """What this process is for the others, and counts."""
    def close(self) -> None:
        """Take part no more."""

@final
class StepClaim:
    """The right to make a step for everybody; forgotten without a result, another makes it."""

    def put(self, packed: bytes) -> SharedBytes | None:
        """Hand over what was made; the same as others see it, or None when there is no memory for that."""

@final
class SharedBytes(Buffer):
    """Bytes that all processes look at in the same memory; a buffer that cannot be written to."""
