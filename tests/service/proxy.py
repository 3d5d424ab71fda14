"""A TCP proxy that damages answers: flips a bit, cuts them off, or resets the connection, a given number of times."""

import contextlib
import socket
import struct
import threading
from typing import Literal

Fault = Literal["flip", "truncate", "reset", "stall"]
#: Answers shorter than this are documents and stay as they are.
_LARGE = 2000


class Proxy:
    """Between a client and one server. Every connection has two threads; all end with the proxy."""

    def __init__(self, server: tuple[str, int], fault: Fault, times: int) -> None:
        self._server, self._fault = server, fault
        self._left = times
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """Where clients go."""
        host, port = self._listener.getsockname()
        return f"penstock://{host}:{port}"

    @property
    def done(self) -> int:
        """Faults that are still to be injected."""
        return self._left

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                self._open.append(client)
                server = socket.create_connection(self._server)
                self._open.append(server)
            except OSError:
                return
            for ends in ((client, server, False), (server, client, True)):
                pump = threading.Thread(target=self._pump, args=ends, daemon=True)
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while got := source.recv(1 << 16):
                if answers and len(got) > _LARGE and self._take():
                    if self._fault == "stall":
                        continue
                    if self._fault == "flip":
                        middle = len(got) - len(got) // 3
                        got = got[:middle] + bytes([got[middle] ^ 16]) + got[middle + 1 :]
                    else:
                        sink.sendall(got[: len(got) // 2])
                        break
                sink.sendall(got)
        except OSError:
            pass
        finally:
            for end in (sink, source):
                # The thread of the other direction may have closed it already.
                with contextlib.suppress(OSError):
                    if self._fault == "reset" and answers:
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _take(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        # Accepting ends first, so that nothing is opened behind our back.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for end in self._open:
            end.close()
