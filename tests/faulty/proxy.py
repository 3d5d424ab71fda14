"""A proxy on the loopback that does to answers what networks and stores do to them, on purpose and repeatably.

    with Proxy(server_url) as proxy:
        proxy.add(Status(503), times=2)
        ...  # talk to proxy.url
        assert proxy.bytes_of("/a.bin") == 1000

Real sockets, a thread per connection; without a fault bytes pass at memory speed. Requests reach the server as they were sent, and every
one is written down: what was asked for, what was answered, how many bytes of body went out.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.faulty.faults import (
    Delay,
    Drop,
    Fault,
    Flip,
    Lose,
    Request,
    Reset,
    Rule,
    Stall,
    Status,
    Throttle,
    Truncate,
)
from tests.faulty.wire import PIECE_BYTES, Head, read_head, unchunk

#: Nothing in here waits longer, whatever the other sides do.
PATIENCE_S = 120.0


@dataclass
class Seen:
    """One request and what became of it."""

    request: Request
    #: Of the answer; None where there was none.
    status: int | None = None
    #: Bytes of body that went out.
    sent: int = 0
    fault: Fault | None = None


class _Over(Exception):
    """No error: the connection has served its purpose and ends here."""


class Proxy:
    """A server between client and store that does what its list of faults says."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._rules: list[Rule] = []
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._open)
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def add(
        self,
        fault: Fault,
        *,
        times: int | None = None,
        share: float = 1.0,
        method: str | None = None,
        path: str = "",
    ) -> Rule:
        """From now on this happens, so often, to requests of this method whose target has this text in it."""
        rule = Rule(fault, times=times, share=share, method=method, path=path)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """No more faults."""
        with self._lock:
            self._rules.clear()

    def requests(self, path: str = "", method: str | None = None) -> list[Seen]:
        """What was asked for so far, in order of arrival."""
        with self._lock:
            seen = list(self._seen)
        return [one for one in seen if path in one.request.target and method in (None, one.request.method)]

    def bytes_of(self, path: str = "") -> int:
        """Bytes of bodies that went out in answers to reads."""
        return sum(one.sent for one in self.requests(path, "GET"))

    def forget(self) -> None:
        """Begin a new record."""
        with self._lock:
            self._seen.clear()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """All requests of one connection, one after another, over one connection to the server."""
        server: socket.socket | None = None
        self._open.add(client)
        try:
            client.settimeout(PATIENCE_S)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            early = b""
            while (head := read_head(client, early)) is not None:
                if server is None:
                    server = socket.create_connection(self._server, timeout=PATIENCE_S)
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._open.add(server)
                early = self._exchange(client, server, head)
        except (_Over, OSError, ValueError):
            # Either side may leave at any time; what the client sees is the point of this program.
            pass
        finally:
            for connection in (client, server):
                if connection is not None:
                    self._open.discard(connection)
                    connection.close()

    def _exchange(self, client: socket.socket, server: socket.socket, head: Head) -> bytes:
        method, target = head.first[0].decode(), head.first[1].decode()
        seen = Seen(Request(method, target, head.range()))
        with self._lock:
            rules = list(self._rules)
            self._seen.append(seen)
        rule = next((rule for rule in rules if rule.applies(seen.request)), None)
        seen.fault = rule.fault if rule else None
        body, early = _request_body(client, head)
        self._before(client, seen)
        server.sendall(head.raw + body)
        self._answer(client, server, seen)
        return early

    def _before(self, client: socket.socket, seen: Seen) -> None:
        """Faults that need no server."""
        match seen.fault:
            case Drop():
                raise _Over
            case Reset(after=None):
                _reset(client)
            case Stall(after=None):
                self._stall(client)
            case Delay(seconds=seconds):
                self._over.wait(seconds)
            case Status(code=code, retry_after_s=after, text=text):
                seen.status = code
                wait = f"Retry-After: {after}\r\n" if after is not None else ""
                body = "" if seen.request.method == "HEAD" else text
                head = f"HTTP/1.1 {code} Injected\r\n{wait}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
                client.sendall((head + body).encode())
                raise _Over

    def _answer(self, client: socket.socket, server: socket.socket, seen: Seen) -> None:
        head = read_head(server)
        if head is None:
            raise _Over
        if isinstance(seen.fault, Lose):
            raise _Over
        seen.status = int(head.first[1])
        length, rest = head.length, head.rest
        if seen.request.method == "HEAD" or seen.status in (204, 304):
            length = 0
        elif head.chunked:
            body, _ = unchunk(server, rest)
            seen.sent += len(body)
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            client.sendall(head.raw + chunk + b"0\r\n\r\n")
            return
        client.sendall(head.raw)
        self._move(client, server, seen, rest, length)
        if length is None:
            raise _Over

    def _move(
        self, client: socket.socket, server: socket.socket, seen: Seen, rest: bytes, length: int | None
    ) -> None:
        """The body, with what is to be done to it."""
        stop = (
            getattr(seen.fault, "after", None) if isinstance(seen.fault, Reset | Truncate | Stall) else None
        )
        flip = seen.fault.at - (seen.request.range or (0, 0))[0] if isinstance(seen.fault, Flip) else None
        begun, most = time.monotonic(), PIECE_BYTES
        if isinstance(seen.fault, Throttle):
            # Little and often, so that it is slow and not silent.
            most = max(1, int(seen.fault.bytes_per_s / 50))
        buffer = bytearray(max(most, len(rest)))
        buffer[: len(rest)] = rest
        got, done = len(rest), 0
        while length is None or done < length:
            if got == 0:
                wanted = most if length is None else min(most, length - done)
                got = server.recv_into(buffer, wanted)
                if got == 0:
                    raise _Over
            piece = memoryview(buffer)[:got]
            if flip is not None and isinstance(seen.fault, Flip) and done <= flip < done + got:
                piece[flip - done] ^= 1 << seen.fault.bit
            if stop is not None and done + got >= stop:
                seen.sent += stop - done
                client.sendall(piece[: stop - done])
                self._break(client, seen.fault)
            # Counted first: who has the bytes finds them counted.
            seen.sent += got
            client.sendall(piece)
            done, got = done + got, 0
            if isinstance(seen.fault, Throttle):
                self._over.wait(max(0.0, begun + done / seen.fault.bytes_per_s - time.monotonic()))

    def _break(self, client: socket.socket, fault: Fault | None) -> None:
        match fault:
            case Reset():
                _reset(client)
            case Stall():
                self._stall(client)
        raise _Over

    def _stall(self, client: socket.socket) -> None:
        """Say nothing until the client leaves or the proxy ends, which shuts its sockets down."""
        select.select([client], [], [], PATIENCE_S)
        raise _Over


def _request_body(client: socket.socket, head: Head) -> tuple[bytes, bytes]:
    """The body of a request, and what was read behind it."""
    length = head.length or 0
    if (head.field(b"expect") or b"").lower() == b"100-continue":
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts, have = [head.rest], len(head.rest)
    while have < length:
        more = client.recv(PIECE_BYTES)
        if not more:
            raise _Over
        parts.append(more)
        have += len(more)
    whole = b"".join(parts)
    return whole[:length], whole[length:]


def _reset(client: socket.socket) -> None:
    # With nothing to linger for, closing sends a reset instead of an orderly end.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    raise _Over
