"""What the program asks of its run between steps: save, or stop. One rank's call is enough.

A request travels in the exchange that every step has, as a number; all ranks act after the same step. Words are exchanged only when
there are some, which is once in a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock.run.contract import Trainable

#: Of a reason, in bytes.
_REASON_BYTES_MAX = 256


class Wish(IntEnum):
    """In the order of strength."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


@dataclass(slots=True)
class Requests:
    """Those of this rank that no exchange has carried yet."""

    wish: Wish = Wish.NOTHING
    reason: str = ""

    def save(self) -> None:
        """Ask for a checkpoint."""
        self.wish = max(self.wish, Wish.SAVE)

    def stop(self, reason: str) -> None:
        """Ask for an end."""
        self.wish, self.reason = Wish.STOP, self.reason or str(reason)

    def taken(self) -> Wish:
        """What to tell the others. Once: whoever asks again is heard again."""
        wish, self.wish = self.wish, Wish.NOTHING
        return wish


def reason_of(state: Trainable, wishes: Sequence[Wish], own: str) -> str:
    """The words of the first rank that asked to stop. All ranks call it."""
    first = next(rank for rank, wish in enumerate(wishes) if wish == Wish.STOP)
    mine = (
        own.encode()[:_REASON_BYTES_MAX].ljust(_REASON_BYTES_MAX, b"\0")
        if state.rank == first
        else bytes(_REASON_BYTES_MAX)
    )
    rows = state.agree([float(byte) for byte in mine])
    return bytes(int(byte) for byte in rows[first]).rstrip(b"\0").decode(errors="replace")
