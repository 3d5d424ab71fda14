"""How hosts that are checked talk to the examiner: lines of JSON over TCP, after both have proved that they know the check's token.

The token is random and reaches hosts on a way that is safe already: in a question, or derived from the job's secret. So whoever finds the port
learns nothing, changes nothing, and is hung up on. Nothing is parsed before the proof.
"""

import hashlib
import hmac
import os
import socket
import time
from typing import Any

import msgspec

from penstock.errors.health import CheckFailed

NONCE_BYTES = 16
PROOF_BYTES = 32
#: Facts of a host with very many GPUs have a few hundred kilobytes.
LINE_BYTES_MAX = 4 << 20
HANDSHAKE_S = 5.0
TRY_S = 0.1


def proof(token: bytes, *words: bytes) -> bytes:
    """What only who knows the token can say."""
    return hmac.new(token, b"\0".join((b"penstock check", *words)), hashlib.sha256).digest()


def token_of(secret: bytes, name: str) -> bytes:
    """The token of a check within a job whose hosts share a secret."""
    return proof(secret, b"token", name.encode())


class CheckLink:
    """One end of a connection whose other end has the token."""

    def __init__(self, handle: socket.socket) -> None:
        self._handle = handle
        self._heard = b""

    def say(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._handle.sendall(msgspec.json.encode(message) + b"\n")

    def hear(self, timeout_s: float | None) -> dict[str, Any] | None:
        """The next message; nothing when the other end is gone. Raises ``OSError`` as sockets do, also when the time is over."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._handle.settimeout(left)
            piece = self._handle.recv(1 << 16)
            if not piece or len(self._heard) + len(piece) > LINE_BYTES_MAX:
                return None
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        self._handle.settimeout(None)
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        """Hang up."""
        self._handle.close()


def accepted(handle: socket.socket, token: bytes, timeout_s: float = HANDSHAKE_S) -> bool:
    """Ask who connected for a proof, and give ours."""
    try:
        handle.settimeout(timeout_s)
        ours = os.urandom(NONCE_BYTES)
        handle.sendall(ours)
        theirs = _exactly(handle, NONCE_BYTES + PROOF_BYTES, timeout_s)
        nonce, said = theirs[:NONCE_BYTES], theirs[NONCE_BYTES:]
        if not hmac.compare_digest(said, proof(token, b"caller", ours, nonce)):
            return False
        handle.sendall(proof(token, b"answerer", ours, nonce))
    except OSError:
        return False
    return True


def connected(address: str, port: int, token: bytes, timeout_s: float) -> socket.socket:
    """A connection to whoever has the token. Raises ``OSError``, or ``CheckFailed`` where somebody else answers."""
    handle = socket.create_connection((address, port), timeout=timeout_s)
    try:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs = _exactly(handle, NONCE_BYTES, timeout_s)
        ours = os.urandom(NONCE_BYTES)
        handle.sendall(ours + proof(token, b"caller", theirs, ours))
        said = _exactly(handle, PROOF_BYTES, timeout_s)
        if not hmac.compare_digest(said, proof(token, b"answerer", theirs, ours)):
            raise CheckFailed(reason=f"{address}:{port} is not of this check")
    except BaseException:
        handle.close()
        raise
    return handle


def connected_soon(address: str, port: int, token: bytes, timeout_s: float) -> socket.socket:
    """The same, until somebody is there: the examiner may begin later. Raises ``CheckFailed``."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return connected(address, port, token, max(TRY_S, min(HANDSHAKE_S, until - time.monotonic())))
        except (OSError, CheckFailed) as problem:
            if time.monotonic() + TRY_S >= until:
                words = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
                raise CheckFailed(reason=f"{address}:{port} does not answer: {words}") from problem
        time.sleep(TRY_S)


def _exactly(handle: socket.socket, count: int, timeout_s: float) -> bytes:
    """So many bytes, within the time for all of them: who sends one a second is no peer."""
    until, heard = time.monotonic() + timeout_s, b""
    while len(heard) < count:
        handle.settimeout(max(0.001, until - time.monotonic()))
        piece = handle.recv(count - len(heard))
        if not piece:
            raise ConnectionResetError("hung up")
        heard += piece
        if time.monotonic() > until and len(heard) < count:
            raise TimeoutError("timed out")
    return heard
