"""A server of one plan: made here, answered in Rust."""

import random
import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock import _rust
from penstock.data.eras.lookahead import EraLookahead
from penstock.data.feed.batch import Finisher
from penstock.data.feed.batch_wire import ship
from penstock.data.feed.columns_wire import NotPackable
from penstock.data.maps.tokens import TokenMapper
from penstock.data.monitor.statistics import RECURRENCE_BLOCKS
from penstock.data.plan.plan import Plan
from penstock.data.plan.to_rust import rust_plan
from penstock.data.records.reader import RecordReader
from penstock.data.service.credential import KeptToken, is_loopback
from penstock.data.service.plan_document import plan_document
from penstock.errors import RowOutOfRange, ServiceUnusable

if TYPE_CHECKING:
    from penstock._rust.service import ServerPlan

#: How long what is being sent may take when a server stops.
STOP_S = 10.0
#: What a machine calls itself.
_LOOPBACK_NAMES = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What bounds a server."""

    #: Threads that make batches.
    threads: int = 2
    #: For batches that were made ahead.
    memory_bytes: int = 256 << 20
    #: What clients must show. Without one, the server makes one up and keeps it where only its own user finds it.
    token: str | None = field(default=None, repr=False)
    #: Let in everybody who reaches the server; no token is wanted.
    open: bool = False
    #: Further names under which the server answers, for tunnels and proxies.
    allow_hosts: tuple[str, ...] = ()
    #: Certificate and key, to serve over TLS.
    tls: tuple[Path, Path] | None = None
    #: A lane that nobody has asked for so long is forgotten.
    forget_after_s: float = 60.0
    #: Requests at once; more are answered with 503.
    requests_max: int = 256
    #: How long a request's head may take, and how long a client may take nothing of its answer.
    head_timeout_s: float = 30.0
    write_timeout_s: float = 30.0


class DataServer:
    """A running server. Close it when done (or use it as a context)."""

    def __init__(
        self, plan: Plan, host: str = "127.0.0.1", port: int = 0, *, options: ServeOptions | None = None
    ) -> None:
        chosen = options or ServeOptions()
        self.plan = plan
        #: Made up where none was given.
        self.kept: KeptToken | None = None if chosen.open or chosen.token is not None else KeptToken()
        document = plan_document(plan)
        self.identity: str = document["identity"]
        finish = None
        if plan.records or plan.drawn:
            finish = _Finishing(RecordReader(plan) if plan.records else TokenMapper(plan))
        try:
            self._server = _rust.BatchServer(
                rust_plan(plan),
                (host, port),
                (msgspec.json.encode(document), self.identity),
                (finish, self._origin, self._bound),
                RECURRENCE_BLOCKS,
                self._plain(chosen, host),
            )
        except OSError as problem:
            self._forget()
            raise ServiceUnusable(
                what=f"{host}:{port}", reason=f"cannot be listened on: {problem.strerror or problem}"
            ) from problem
        self._lookahead = self._open_lookahead()

    def _bound(self, port: int) -> None:
        if self.kept is not None:
            self.kept.keep(port)

    def _forget(self) -> None:
        if self.kept is not None:
            self.kept.forget()

    def _plain(self, options: ServeOptions, host: str) -> "ServerPlan":
        """As the Rust side takes it."""
        return {
            "threads": options.threads,
            "memory_bytes": options.memory_bytes,
            "forget_after_s": options.forget_after_s,
            "requests_max": options.requests_max,
            "token": None if options.open else options.token or (self.kept.text if self.kept else None),
            "hosts": _hosts(options, host),
            "tls": options.tls,
            "head_timeout_s": options.head_timeout_s,
            "write_timeout_s": options.write_timeout_s,
        }

    def _open_lookahead(self) -> EraLookahead | None:
        sources = {
            number: prepared.growing for number, prepared in enumerate(self.plan.prepared) if prepared.growing
        }
        if not sources:
            return None
        start = random.SystemRandom().random()
        return EraLookahead(self._server, sources, start=start, watch=self.plan.watch)

    def _origin(self, source: int, sample: int) -> bytes:
        """Where a sample lies, as JSON."""
        if source >= len(self.plan.prepared):
            raise RowOutOfRange(row=source, rows=len(self.plan.prepared))
        version = self.plan.prepared[source].version
        if sample >= version.rows:
            raise RowOutOfRange(row=sample, rows=version.rows)
        shard, row = version.shard_of(sample)
        origin = {"shard": shard.name, "row": int(row), "byte_range": version.byte_range(shard, row)}
        return msgspec.json.encode(origin)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self._server.address()

    def statistics(self) -> dict[str, Any]:
        """Counters since the start."""
        counters: dict[str, Any] = msgspec.json.decode(self._server.statistics())
        return counters

    def close(self, limit_s: float = STOP_S) -> bool:
        """Refuse what is new and finish what is being sent; whether all was sent within the limit."""
        sent = self._server.stop(limit_s)
        self._forget()
        if self._lookahead is not None:
            self._lookahead.close()
        return sent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Finishing:
    """Finishes what Rust planned, and packs it."""

    def __init__(self, finish: Finisher) -> None:
        self._finish = finish

    def __call__(self, rust_batch: _rust.FeedBatch) -> bytes:
        batch = self._finish(rust_batch)
        try:
            return ship(batch)
        except NotPackable as problem:
            reason = f"step {batch.step} cannot be sent: {problem}"
            hint = "let a map turn such values into numbers, text or arrays"
            raise ServiceUnusable(what="the batch", reason=reason, hint=hint) from problem


def _hosts(options: ServeOptions, bind: str) -> tuple[list[str], bool, bool]:
    """Names under which the server answers, and whether any address, and any name, will do.

    Beyond loopback, machines have more names than they know of; there a token, which no foreign page has, makes names unimportant.
    """
    names = {bind, *_LOOPBACK_NAMES, *options.allow_hosts}
    near = is_loopback(bind)
    if not near:
        names.add(socket.gethostname())
    every = bind in ("0.0.0.0", "::", "")  # noqa: S104 - asked for by the caller, and only compared
    return sorted(name.lower() for name in names), every, not near and not options.open
