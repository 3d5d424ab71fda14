"""What a proxy does to an answer, and to which requests.

A ``Rule`` is asked for every request, in the order in which rules were added; the first that applies decides. How often it applies is
a count, or a share that is spread evenly over the requests it matches: the same requests in the same order meet the same faults.
"""

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """An answer with this status, without asking the server."""

    code: int
    retry_after_s: int | None = None
    text: str = "injected"


@dataclass(frozen=True)
class Drop:
    """The connection ends without an answer."""


@dataclass(frozen=True)
class Reset:
    """The connection is reset after so many bytes of the body; before the head where that is None."""

    after: int | None = None


@dataclass(frozen=True)
class Truncate:
    """The connection ends in an orderly way after so many bytes of the body."""

    after: int


@dataclass(frozen=True)
class Stall:
    """Nothing more comes after so many bytes of the body (before the head where that is None), and the connection stays."""

    after: int | None = 0


@dataclass(frozen=True)
class Flip:
    """One bit of a byte of the object is inverted, in answers that have that byte."""

    at: int
    bit: int = 0


@dataclass(frozen=True)
class Throttle:
    """The body comes at so many bytes per second."""

    bytes_per_s: float


@dataclass(frozen=True)
class Delay:
    """The answer comes so much later."""

    seconds: float


@dataclass(frozen=True)
class Lose:
    """The server is asked and does it, and the connection ends without an answer."""


Fault = Status | Drop | Reset | Truncate | Stall | Flip | Throttle | Delay | Lose


@dataclass(frozen=True)
class Request:
    """The head of a request, as far as anybody wants to know."""

    method: str
    #: As sent: with the query, quoted.
    target: str
    #: First byte and end of what is asked for; None for the whole object.
    range: tuple[int, int] | None

    @property
    def path(self) -> str:
        """Without the query."""
        return self.target.partition("?")[0]


class Rule:
    """One fault and when it happens. Safe from any thread."""

    def __init__(
        self,
        fault: Fault,
        *,
        times: int | None = None,
        share: float = 1.0,
        method: str | None = None,
        path: str = "",
    ) -> None:
        self.fault = fault
        #: How often it happened.
        self.happened = 0
        self._times, self._share, self._method, self._path = times, share, method, path
        self._matched = 0
        self._lock = threading.Lock()

    def applies(self, request: Request) -> bool:
        """Whether it happens to this request; if so it is counted."""
        if self._method not in (None, request.method) or self._path not in request.target:
            return False
        if isinstance(self.fault, Flip) and not _has(request, self.fault.at):
            return False
        with self._lock:
            before, self._matched = self._matched, self._matched + 1
            due = int(self._matched * self._share) > int(before * self._share)
            if not due or (self._times is not None and self.happened >= self._times):
                return False
            self.happened += 1
            return True


def _has(request: Request, at: int) -> bool:
    if request.method != "GET":
        return False
    start, end = request.range or (0, at + 1)
    return start <= at < end
