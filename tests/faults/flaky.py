"""A proxy in front of a real server, which answers some requests with an error, as busy object stores do."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@contextmanager
def proxy(target: str, fails: Callable[[int], bool]) -> Iterator[str]:
    """The URL of a proxy; ``fails`` says of the n-th request whether it is answered with 503."""
    count = 0
    lock = threading.Lock()
    address = urlsplit(target).netloc

    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            nonlocal count
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                count += 1
                failing = fails(count)
            if failing:
                self._send(503, {}, b"<Error><Code>SlowDown</Code></Error>")
                return
            server = http.client.HTTPConnection(address, timeout=30)
            try:
                server.request(self.command, self.path, body, dict(self.headers))
                response = server.getresponse()
                self._send(response.status, dict(response.getheaders()), response.read())
            finally:
                server.close()

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", headers.get("content-length"))
            # The answer to a HEAD request has a length and no body.
            self.send_header(
                "Content-Length", length if self.command == "HEAD" and length else str(len(body))
            )
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    for verb in ("GET", "PUT", "POST", "HEAD", "DELETE"):
        setattr(Forward, f"do_{verb}", Forward._answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()
