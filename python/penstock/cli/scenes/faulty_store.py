"""A store of files over HTTP that misbehaves when told to: ``python faulty_store.py FOLDER``, a program of the demo.

It prints its port. From the signal SIGUSR1 on, answers with a body are, in turn: refused with 503, cut off by a reset in the middle, given
with one bit flipped; then good again.
"""

import functools
import re
import signal
import socket
import struct
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

_FAULTS = ["refuse", "refuse", "reset", "flip"]


class FaultyStore(SimpleHTTPRequestHandler):
    """Ranges of files, and faults while there are any left."""

    protocol_version = "HTTP/1.1"
    faults: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        """Length and stamp of a file."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """A range of a file, or all of it."""
        self._answer(body=True)

    def log_message(self, *_words: object) -> None:
        """Says nothing; the reader does."""

    def _answer(self, *, body: bool) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(wanted[1]), min(int(wanted[2]), len(data) - 1)) if wanted else (0, len(data) - 1)
        part = bytearray(data[first : last + 1])
        fault = self.faults.pop(0) if body and self.faults else ""
        if fault == "refuse":
            return self.send_error(503)
        if fault == "flip":
            part[len(part) // 2] ^= 1
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        if fault == "reset":
            self.wfile.write(part[: len(part) // 2])
            # Closing with unsent data forbidden to linger is a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        elif body:
            self.wfile.write(part)
        return None


def main() -> None:
    """Serve a folder until killed."""
    serve = functools.partial(FaultyStore, directory=sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), serve)
    signal.signal(signal.SIGUSR1, lambda *_: FaultyStore.faults.extend(_FAULTS))
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
