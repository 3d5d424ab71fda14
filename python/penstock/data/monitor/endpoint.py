"""A small server that answers GET ``/metrics`` with text, and nothing else."""

import http.server
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any

from penstock.data.monitor.exposition import CONTENT_TYPE
from penstock.errors import UsageError

#: A client that says nothing is dropped after this.
_CLIENT_S = 5.0
#: Connections that are answered at a time; others are turned away.
_CLIENTS_MAX = 16
_PORT_MAX = 65535


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; port 0 is any that is free."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise UsageError(
            f"an address to serve at must be host:port, got {address!r:.100}", hint="such as 127.0.0.1:9464"
        )
    return host.strip("[]"), int(port)


class Endpoint:
    """Answers with what ``text`` gives until it is closed."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        host, port = parse_address(address)
        self.process = os.getpid()
        self.is_closed = False
        try:
            self._server = _Server(host, port, text)
        except (OSError, UnicodeError) as problem:
            raise UsageError(f"numbers cannot be served at {address}: {problem}") from problem
        threading.Thread(target=self._server.serve_forever, name="penstock-metrics", daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def close(self) -> None:
        """Stop listening."""
        if self.is_closed:
            return
        self.is_closed = True
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        self.text = text
        self._room = threading.BoundedSemaphore(_CLIENTS_MAX)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Answer)

    def server_bind(self) -> None:
        """Without the look-up of a name that the server never uses, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, while there are few."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nothing to tell."""


class _Answer(http.server.BaseHTTPRequestHandler):
    """One request."""

    timeout = _CLIENT_S
    server: _Server

    def do_GET(self) -> None:
        """Answer ``/metrics``."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are nothing to tell."""
