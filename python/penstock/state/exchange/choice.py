"""Which tensors go out, and under which names."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from penstock.errors import UsageError
from penstock.state.inspect.dtypes import FLOATS, TARGETS


@dataclass(frozen=True, slots=True)
class Choice:
    """Everything, unless it says otherwise."""

    #: Only names that begin with it; it is taken away from them.
    prefix: str = ""
    #: Only names that match one of these patterns (``*`` and ``?``), before the prefix is taken away.
    only: tuple[str, ...] = ()
    #: What floating-point tensors are cast to; None leaves them as they are.
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in TARGETS:
            raise UsageError(f"dtype {self.dtype} is not known", hint=f"one of {', '.join(TARGETS)}")

    def names(self, known: Iterable[str]) -> dict[str, str]:
        """From chosen names to what they are called outside."""
        return {name: name.removeprefix(self.prefix) for name in known if self._chosen(name)}

    def tensors(self, known: Iterable[str]) -> dict[str, str]:
        """The same for tensors, of which there has to be one."""
        known = list(known)
        chosen = self.names(known)
        if not chosen:
            some = ", ".join(sorted(known)[:4])
            raise UsageError(
                f"no tensor is chosen by prefix {self.prefix!r} and {list(self.only) or 'no pattern'}",
                hint=f"there are {some} …" if some else "the checkpoint has no tensors",
            )
        return chosen

    def cast(self, dtype: str) -> str:
        """The type that a tensor has outside."""
        return self.dtype if self.dtype is not None and dtype in FLOATS else dtype

    def _chosen(self, name: str) -> bool:
        if not name.startswith(self.prefix) or name == self.prefix:
            return False
        return not self.only or any(fnmatchcase(name, pattern) for pattern in self.only)
