"""How long and how many strangers may stay connected, so that they cannot keep readers out.

A connection belongs to a stranger until a request on it was accepted (``access``). A stranger's headers must be complete within a
deadline, and when too many strangers are connected, from one address or in all, the one that has waited longest is dropped:
newcomers always get a turn, and whoever has the token is never counted. A refusal ends its connection.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.view.web.access import ACCEPTED, error_answer


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """What is granted before and after a request was accepted."""

    #: Seconds for the headers of a request, from the first moment of a connection or the first byte of a later request.
    headers_s: float = 10.0
    #: Strangers of one address, and in all; far below the file descriptors that a process has.
    strangers_per_peer: int = 64
    strangers: int = 256
    #: Accepted requests at once.
    requests: int = 200


@dataclass
class Strangers:
    """Connections on which no request was accepted yet, by address, the longest waiting first. One event loop uses it."""

    limits: ConnectionLimits
    _peers: "dict[str, OrderedDict[Any, None]]" = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self._peers.values()))

    def add(self, connection: Any, peer: str) -> Any | None:
        """Note a newcomer; the connection that has to go for it, if one has."""
        own = self._peers.setdefault(peer, OrderedDict())
        own[connection] = None
        if len(own) > self.limits.strangers_per_peer:
            return next(iter(own))
        if len(self) > self.limits.strangers:
            crowded = max(self._peers, key=lambda address: len(self._peers[address]))
            return next(iter(self._peers[crowded]))
        return None

    def remove(self, connection: Any, peer: str) -> None:
        """Forget a connection: it is closed, or it is no stranger's any more."""
        own = self._peers.get(peer)
        if own is not None:
            own.pop(connection, None)
            if not own:
                del self._peers[peer]


class Connection(H11Protocol):
    """One connection; ``connection_class`` gives it what all connections of a server share."""

    strangers: Strangers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and start the clock."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        self._deadline: asyncio.TimerHandle | None = None
        self.app = partial(self._answer, self.app)
        crowded = self.strangers.add(self, self._peer)
        if crowded is not None:
            crowded.drop()
        self._start_clock()

    def data_received(self, data: bytes) -> None:
        """The first byte of a later request starts the clock again."""
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._start_clock()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_clock()
        self.strangers.remove(self, self._peer)
        super().connection_lost(exc)

    def drop(self) -> None:
        """End it at once; nothing that it sent matters."""
        self.strangers.remove(self, self._peer)
        self.transport.abort()

    async def _answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._stop_clock()
        accepted = partial(self.strangers.remove, self, self._peer)
        await app({**scope, ACCEPTED: accepted}, receive, send)

    def _start_clock(self) -> None:
        self._deadline = self.loop.call_later(self.strangers.limits.headers_s, self.drop)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class RequestLimit:
    """Refuses accepted requests beyond a number at once, with the status that says to come again."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless too much is being answered."""
        if scope["type"] == "http" and self._running >= self._limit:
            answer = error_answer(503, f"{self._limit} requests are being answered; ask again in a moment")
            await answer(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1


def connection_class(limits: ConnectionLimits) -> type[Connection]:
    """Connections of one server, which count their strangers together."""
    return type("Connection", (Connection,), {"strangers": Strangers(limits)})
