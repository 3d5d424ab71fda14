"""The step table: its writer, its files read back, and the clock that divides steps into parts."""

from pathlib import Path
from types import TracebackType
from typing import Literal, Self, final

@final
class StepWriter:
    """Writes the rows of one rank of one life. Nothing here waits for a disk but ``flush`` and ``close``."""

    def __new__(cls, folder: Path, stem: str, *, header: str, columns: list[str], bytes_max: int) -> Self: ...
    @property
    def path(self) -> Path | None:
        """The block file; nothing when it is closed."""
    def begin(self, step: int, at: int) -> None:
        """A step begins; a negative one says that none is under way."""
    def row(self, values: list[int]) -> int:
        """A step is over; the number of its row, for values that come later."""
    def patch(self, row: int, column: int, value: int) -> None:
        """An integer of an earlier row."""
    def patch_float(self, row: int, column: int, value: float) -> None:
        """A floating-point number of an earlier row."""
    def column(self, name: str, *, is_float: bool) -> int | None:
        """The number of a column, which is added unless it is there; None when there are too many or its name is too long."""
    def anchor(self, boot: int, monotonic: int, wall: int) -> None:
        """Several clocks at one moment, in nanoseconds."""
    def commit(self, step: int) -> None:
        """The checkpoint before a step was committed."""
    def flush(self, timeout_s: float) -> bool:
        """Wait until what was given before is on file."""
    def statistics(self) -> tuple[int, int, int, int, int, int, str | None] | None:
        """Rows, lost rows, late values, bytes, bytes of blocks, values in blocks, and the last failure; nothing when it is closed."""
    def close(self) -> None:
        """End the thread after a last drain."""

@final
class StepFile:
    """What a block file and the tail beside it say."""

    def __new__(cls, path: Path, *, columns: list[str] | None = None) -> Self: ...
    @property
    def header(self) -> str:
        """Who wrote, as JSON; empty when it is damaged."""
    @property
    def rows(self) -> int:
        """How many rows there are."""
    def columns(self) -> dict[str, tuple[Literal["integer", "float"], bytes]]:
        """Kind and values of every column, 8 bytes each."""
    def rolled(self) -> dict[str, tuple[Literal["integer", "float"], bytes]]:
        """The same of the roll-ups, which stand for rows that were thinned."""
    @property
    def anchors(self) -> list[tuple[int, int, int]]:
        """Boot time, monotonic time and wall time of every anchor."""
    @property
    def commits(self) -> list[int]:
        """Steps before which a checkpoint was committed."""
    @property
    def lost(self) -> int:
        """Rows that the writer has lost."""
    @property
    def is_closed(self) -> bool:
        """Whether it was closed in order."""
    @property
    def begun(self) -> tuple[int, int] | None:
        """Number and beginning of a step that has no row."""
    @property
    def faults(self) -> list[tuple[Path, int, str]]:
        """File, place and reason of what could not be read."""

@final
class StepFollower:
    """A table that is read while it is written. Nothing is read before the first look."""

    def __new__(cls, path: Path, *, columns: list[str]) -> Self:
        """Give these columns; a name that ends in a dot stands for all that begin with it."""
    def look(self) -> StepNews:
        """Take what is new. The first look gives the newest rows only."""

@final
class StepNews:
    """What is new in a table, and what may have changed: rows whose values can still come are told again."""

    @property
    def numbers(self) -> list[int]:
        """Numbers of the rows; each replaces what was told of it before."""
    def columns(self) -> dict[str, tuple[Literal["integer", "float"], bytes]]:
        """Kind and values of every column, 8 bytes each."""
    @property
    def begun(self) -> tuple[int, int] | None:
        """Number and beginning of a step that has no row."""
    @property
    def is_closed(self) -> bool:
        """Whether the table was closed in order."""
    @property
    def lost(self) -> int:
        """Rows that the writer has lost."""
    @property
    def faults(self) -> int:
        """How many pieces of the files could not be read, since the beginning."""
    @property
    def is_anew(self) -> bool:
        """Whether rows before these were passed over: by the first look, or because they are gone."""

@final
class PartClock:
    """Divides the time of steps into parts: every nanosecond belongs to the innermost that is open, or to the rest."""

    def __new__(cls, rest: int) -> Self: ...
    @property
    def begin(self) -> int:
        """When the row began; CLOCK_BOOTTIME in ns."""
    def restart(self) -> None:
        """A row begins now, after something that is in no row."""
    def enter(self, part: int) -> None:
        """From now on time belongs to a part."""
    def leave(self) -> None:
        """The innermost part is over; without one nothing happens."""
    def current(self) -> int:
        """The innermost part."""

    def is_open(self, part: int) -> bool:
        """Whether a part is around what happens now."""
    def turn(self, count: int) -> tuple[int, int, list[int], int]:
        """The row ends and the next one begins: begin, end, ns of the first parts, and a bit for each part that was entered."""
    def part(self, number: int) -> Part:
        """A block whose time belongs to a part."""

@final
class Part:
    """A part of a step as a block. One object serves all blocks of a part: what is open is the clock's."""

    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
