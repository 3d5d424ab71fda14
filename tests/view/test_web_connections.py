"""Strangers on the network cannot keep readers out of the web view: real sockets against the real server."""

import http.client
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.view.web.connections import ConnectionLimits, Strangers
from tests.view.exhibit import Exhibit

PATIENCE_S = 60.0
#: What a stranger sends before it falls silent: nothing, half a head, a whole request without the token, and half of the next one.
SILENCES = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "no token": b"GET /api/datasets HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a body that never comes": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00",
}


@contextmanager
def crowd(host: str, port: int, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """Connections that say something and then nothing more."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, port), timeout=PATIENCE_S))
            connection.sendall(said)
            connections.append(connection)
        yield connections


def ask(address: str) -> list[int]:
    """What a reader with the token gets: a page, and data on the same connection."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=PATIENCE_S)
    connection.request("GET", f"/?{parts.query}")
    first = connection.getresponse()
    first.read()
    cookie = (first.getheader("set-cookie") or "").partition(";")[0]
    connection.request("GET", "/api/datasets", headers={"cookie": cookie})
    second = connection.getresponse()
    second.read()
    connection.close()
    return [first.status, second.status]


@pytest.fixture
def address(exhibit_address: str) -> str:
    return exhibit_address


@pytest.mark.parametrize("said", SILENCES.values(), ids=SILENCES)
def test_strangers_that_say_nothing_do_not_lock_the_door(address: str, said: bytes) -> None:
    """Goal: 205 silent connections, which once meant 503 for everybody for minutes, are not noticed."""
    parts = urlsplit(address)
    with crowd(parts.hostname or "", parts.port or 0, 205, said):
        assert ask(address) == [200, 200]


def test_a_storm_of_connections_pushes_no_reader_out(address: str) -> None:
    """Method: two threads open connections as fast as they can while a reader asks."""
    parts = urlsplit(address)
    over = threading.Event()

    def storm() -> None:
        while not over.is_set():
            with crowd(parts.hostname or "", parts.port or 0, 100, b""):
                pass

    threads = [threading.Thread(target=storm) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [ask(address) for _ in range(3)] == [[200, 200]] * 3
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)


def test_of_a_crowd_the_longest_waiting_are_dropped(address: str) -> None:
    parts = urlsplit(address)
    limit = ConnectionLimits().strangers_per_peer
    with crowd(parts.hostname or "", parts.port or 0, limit + 40, b"") as connections:
        for connection in connections[:40]:
            assert _ended(connection)
        with selectors.DefaultSelector() as selector:
            for connection in connections[-limit // 2 :]:
                selector.register(connection, selectors.EVENT_READ)
            assert selector.select(0) == []


def test_a_reader_who_has_the_token_is_not_counted_among_strangers(address: str) -> None:
    """Method: a connection with an accepted request stays usable while a crowd comes and goes."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=PATIENCE_S)
    connection.request("GET", f"/?{parts.query}")
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    held = connection.sock
    with crowd(parts.hostname or "", parts.port or 0, 300, b""):
        connection.request("GET", "/api/datasets", headers={"cookie": cookie})
        assert connection.getresponse().status == 200
        assert connection.sock is held
    connection.close()


def test_a_refusal_ends_its_connection(address: str) -> None:
    parts = urlsplit(address)
    with crowd(parts.hostname or "", parts.port or 0, 1, SILENCES["no token"]) as (stranger,):
        said = b""
        while chunk := stranger.recv(65_536):
            said += chunk
    assert said.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in said.lower()


@pytest.mark.parametrize("said", [b"", SILENCES["half a head"]])
def test_headers_have_a_deadline(exhibit: Exhibit, said: bytes) -> None:
    """Method: a server with a short deadline; the test waits for the end of the connection and for no clock."""
    limits = ConnectionLimits(headers_s=0.2)
    with answering(exhibit.folder, limits) as port, crowd("127.0.0.1", port, 1, said) as (stranger,):
        assert _ended(stranger)


def test_strangers_are_counted_by_address_and_in_all() -> None:
    limits = ConnectionLimits(strangers_per_peer=3, strangers=6)
    strangers = Strangers(limits)

    assert [strangers.add(n, "a") for n in range(4)] == [None, None, None, 0]
    strangers.remove(0, "a")
    assert [strangers.add(n, "b") for n in (10, 11)] == [None, None]
    assert strangers.add(20, "c") is None
    # The most crowded address gives way, not the newcomer.
    assert strangers.add(30, "d") == 1
    for connection, peer in ((1, "a"), (2, "a"), (3, "a"), (10, "b"), (11, "b"), (20, "c"), (30, "d")):
        strangers.remove(connection, peer)
        strangers.remove(connection, peer)
    assert len(strangers) == 0


def _ended(connection: socket.socket) -> bool:
    """Whether the server ends a connection, which is waited for."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@contextmanager
def answering(folder: Path, limits: ConnectionLimits) -> Iterator[int]:
    """A server with limits of its own, in a thread; its port."""
    import uvicorn

    from penstock.view.web.access import access_for
    from penstock.view.web.connections import connection_class
    from penstock.view.web.server import create_app, listen
    from tests.view.serving import site_at

    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = create_app(site_at(folder), access_for("127.0.0.1", port), limits)
    server = uvicorn.Server(
        uvicorn.Config(app, http=connection_class(limits), ws="none", log_level="warning")
    )
    serve: Callable[[], None] = lambda: server.run(sockets=[listener])  # noqa: E731
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()
