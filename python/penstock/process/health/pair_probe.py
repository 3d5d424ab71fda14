"""What two hosts measure of the way between them: whether each can open a connection to the other, how long a word takes, how fast bytes go each way.

The caller opens a connection, pings, sends for a short time and receives for as long; then the answerer opens one back. Each side counts what it
received. Time and bytes are limited, so a check of hosts that train takes little from them.
"""

import socket
import time
from typing import Any

import msgspec

from penstock.errors.health import CheckFailed
from penstock.process.health.check_link import accepted, connected, proof

PINGS = 9
CONNECT_S = 1.5
PIECE = bytes(256 << 10)


class PairPlan(msgspec.Struct, frozen=True):
    """One meeting, as whoever collects plans it."""

    number: int
    calls: bool
    address: str
    port: int
    #: How long each sends, and how much at most.
    seconds: float = 0.15
    bytes_max: int = 1 << 30
    limit_s: float = 3.0


class PairFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one of the two saw."""

    #: Seconds to the other and back, the median of a few; 0: not measured.
    round_trip_s: float = 0.0
    #: Bytes per second that came from the other.
    rate: float = 0.0
    problem: str = ""


def meet(plan: PairPlan, listener: socket.socket, token: bytes) -> PairFigures:
    """Take part in one meeting."""
    key = proof(token, b"pair", str(plan.number).encode())
    until = time.monotonic() + plan.limit_s
    try:
        return _call(plan, listener, key, until) if plan.calls else _answer(plan, listener, key, until)
    except (OSError, CheckFailed) as problem:
        words = getattr(problem, "strerror", None) or str(problem) or "timed out"
        return PairFigures(problem=words)


def _call(plan: PairPlan, listener: socket.socket, key: bytes, until: float) -> PairFigures:
    with _open(plan, key) as link:
        trip_s = _ping(link, until)
        _send(link, plan, until)
        rate = _receive(link, until)
    with _let_in(listener, key, until) as back:
        _echo(back, until)
    return PairFigures(trip_s, rate)


def _answer(plan: PairPlan, listener: socket.socket, key: bytes, until: float) -> PairFigures:
    with _let_in(listener, key, until) as link:
        _echo(link, until)
        rate = _receive(link, until)
        _send(link, plan, until)
    with _open(plan, key) as back:
        trip_s = _ping(back, until)
    return PairFigures(trip_s, rate)


def _open(plan: PairPlan, key: bytes) -> socket.socket:
    try:
        return connected(plan.address, plan.port, key, CONNECT_S)
    except TimeoutError as problem:
        raise TimeoutError(f"{plan.address} does not answer within {CONNECT_S:g} s") from problem


def _let_in(listener: socket.socket, key: bytes, until: float) -> socket.socket:
    """The partner; anybody else who connects is hung up on."""
    while (left := until - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            link, _ = listener.accept()
        except TimeoutError:
            break
        if accepted(link, key, min(CONNECT_S, max(0.001, until - time.monotonic()))):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link
        link.close()
    raise TimeoutError("the partner did not connect")


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _ping(link: socket.socket, until: float) -> float:
    trips = []
    for _ in range(PINGS):
        link.settimeout(_left(until))
        begun = time.perf_counter()
        link.sendall(b"?")
        if not link.recv(1):
            raise ConnectionResetError("hung up")
        trips.append(time.perf_counter() - begun)
    return sorted(trips)[PINGS // 2]


def _echo(link: socket.socket, until: float) -> None:
    for _ in range(PINGS):
        link.settimeout(_left(until))
        if not link.recv(1):
            raise ConnectionResetError("hung up")
        link.sendall(b"!")


def _send(link: socket.socket, plan: PairPlan, until: float) -> None:
    begun, sent = time.monotonic(), 0
    while time.monotonic() - begun < plan.seconds and sent < plan.bytes_max:
        link.settimeout(_left(until))
        sent += link.send(PIECE)
    link.shutdown(socket.SHUT_WR)


def _receive(link: socket.socket, until: float) -> float:
    buffer, count, begun = bytearray(1 << 20), 0, 0.0
    ended = begun
    while True:
        link.settimeout(_left(until))
        length = link.recv_into(buffer)
        if not length:
            break
        ended = time.perf_counter()
        begun = begun or ended
        count += length
    return count / max(ended - begun, 1e-6) if ended > begun else 0.0


def plain(figures: PairFigures) -> dict[str, Any]:
    """As it travels."""
    return dict(msgspec.to_builtins(figures))
