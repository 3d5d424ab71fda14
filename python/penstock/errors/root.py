"""The root of all errors, and what makes them travel."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

#: What the note of a hint begins with.
HINT = "hint: "


class PenstockError(Exception):
    """Whatever Penstock raises on purpose."""

    #: What the reader can do about it, if that is known.
    hint: str | None = None
    #: What the command line exits with: 2 for bad input, 1 when a check found the world wanting.
    exit_code: ClassVar[int] = 2

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        """An error of a class that has a hint shows it from the beginning."""
        problem = super().__new__(cls, *args)
        problem._show_hint()
        return problem

    def __setattr__(self, name: str, value: Any) -> None:
        """A hint is also a note, which is what tracebacks show below the message."""
        super().__setattr__(name, value)
        if name == "hint":
            self._show_hint()

    def _show_hint(self) -> None:
        """Note the hint, in the place of an earlier one."""
        notes = self.__dict__.setdefault("__notes__", [])
        notes[:] = [note for note in notes if not note.startswith(HINT)]
        if self.hint:
            notes.insert(0, HINT + self.hint)

    def __reduce__(self) -> "tuple[Callable[..., PenstockError], tuple[Any, ...]]":
        # Errors travel between processes with their fields; their constructors take keywords, which pickle does not know.
        return _revive, (type(self), self.args, self.__dict__)


def _revive(kind: type[PenstockError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> PenstockError:
    problem = kind.__new__(kind, *arguments)
    problem.args = arguments
    problem.__dict__.update(fields)
    return problem


class UsageError(PenstockError):
    """The command line or an argument makes no sense."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if hint is not None:
            self.hint = hint
        super().__init__(message)


class NameUnwritable(PenstockError):
    """A name that the encoding of file names, or UTF-8, cannot write."""

    def __init__(self, *, name: str, encoding: str) -> None:
        self.name = name
        self.encoding = encoding
        self.hint = (
            "the bytes of that name are no UTF-8: rename the file"
            if encoding.replace("-", "").lower() == "utf8"
            else "choose a locale of UTF-8, as in LC_ALL=C.UTF-8, and unset PYTHONUTF8"
        )
        escaped = name[:200].encode("unicode_escape").decode("ascii")
        super().__init__(f"{escaped!r} cannot be written in {encoding}")
