"""The data service: a server that makes batches for others, and the client's side of a feed."""

from collections.abc import Callable
from pathlib import Path
from typing import Self, TypedDict, final

from penstock._rust.feed import FeedBatch
from penstock._rust.plan import FeedPlan, PartPlan

class ServerPlan(TypedDict):
    """What bounds a server."""

    threads: int
    memory_bytes: int
    forget_after_s: float
    requests_max: int
    token: str | None
    #: The names under which it answers, and whether any literal address, and any name, will do.
    hosts: tuple[list[str], bool, bool]
    #: Certificate and key.
    tls: tuple[Path, Path] | None
    head_timeout_s: float
    write_timeout_s: float

class ClientPlan(TypedDict):
    """Whom a client asks."""

    servers: list[tuple[str, int]]
    #: What each server is shown: a token, or the file that has it.
    credentials: list[str | Path | None]
    tls: bool
    authorities: Path | None
    #: Which server is asked first.
    first: int
    connect_timeout_s: float
    silence_max_s: float
    limit_s: float

class LaneRequest(TypedDict):
    """What a feed wants of servers."""

    #: Its number, and how many lanes there are.
    lane: tuple[int, int]
    #: The name of the plan.
    plan: str
    #: Steps that are left out.
    skips: list[tuple[int, int]]
    #: Whether Python reads the batches.
    finished: bool

@final
class BatchServer:
    """Makes batches of a plan and serves them, without the GIL where Rust makes them alone."""

    def __new__(
        cls,
        plan: FeedPlan,
        bind: tuple[str, int],
        told: tuple[bytes, str],
        functions: tuple[
            Callable[[FeedBatch], bytes] | None, Callable[[int, int], bytes], Callable[[int], None]
        ],
        recurrence_blocks: int,
        options: ServerPlan,
    ) -> Self:
        """``told``: what clients get as the plan, and its name.

        ``functions``: finishes a batch, finds a sample's origin, and learns the port before anything is answered.
        """
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
    def statistics(self) -> str:
        """Counters since the start, as JSON."""
    def stop(self, limit_s: float) -> bool:
        """Refuse what is new, finish what is being sent, and end; whether all was sent in time."""
    def add_part(self, source: int, part: PartPlan) -> None:
        """Add the next part of a source that grows."""
    def fail_source(self, source: int, problem: BaseException) -> None:
        """Say that no more parts of a source will come; steps that need more get the exception."""
    def wanted(self) -> list[int]:
        """How many rows of each source the furthest step that was begun needs."""

@final
class ServiceClient:
    """Asks servers questions."""

    def __new__(cls, options: ClientPlan) -> Self: ...
    @staticmethod
    def protocol() -> tuple[int, int]:
        """The protocol that is spoken, and the layout of batches."""
    def ask(self, path: str) -> bytes:
        """What the first server that answers says."""
    def ask_one(self, server: int, path: str) -> bytes:
        """What one server says, asked once."""
    def close(self) -> None:
        """End requests that are under way."""

@final
class ServiceFeed:
    """Batches of one lane, read ahead from servers."""

    def __new__(
        cls, options: ClientPlan, wanted: LaneRequest, step: int, threads: int, memory_bytes: int
    ) -> Self: ...
    def next(self) -> FeedBatch | bytes | None:
        """The next batch, or its bytes where Python reads them; None at the end of the stream."""
    def ready(self) -> int:
        """Batches that have arrived and wait."""
    def waits(self) -> tuple[int, int, bytes]:
        """Batches delivered, batches ready, and the last waits in seconds (f64)."""
    def counts(self) -> list[int]:
        """Requests, failures, damaged answers, and how often another server took over."""
    def close(self) -> None:
        """End the threads."""
