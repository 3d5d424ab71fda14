"""Numbers of all feeds of this process for Prometheus, as text over HTTP; off unless asked for.

``serve("127.0.0.1:9464")`` starts one small server per process; opening a feed does so where ``PENSTOCK_METRICS`` names an address. Ranks
of one host that share the setting take the port after it with their ``LOCAL_RANK``. It answers GET ``/metrics`` and nothing else, and
listens on the loopback address unless told otherwise.
"""

import http.server
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.data.feed.feed import Feed

_log = logging.getLogger("penstock.data")
#: Connections that are answered at a time are few; a client that says nothing is dropped after this.
_CLIENT_S = 5.0
_PORT_MAX = 65535
_lock = threading.Lock()
_feeds: "weakref.WeakSet[Feed]" = weakref.WeakSet()
_endpoint: "Endpoint | None" = None


class Endpoint:
    """A server that answers with the numbers of this process until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self.process = os.getpid()
        self._server = http.server.ThreadingHTTPServer((host, port), _Answer)
        self._server.daemon_threads = True
        serving = threading.Thread(target=self._server.serve_forever, name="penstock-metrics", daemon=True)
        serving.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def close(self) -> None:
        """Stop listening."""
        global _endpoint
        self._server.shutdown()
        self._server.server_close()
        with _lock:
            if _endpoint is self:
                _endpoint = None


def serve(address: str) -> Endpoint:
    """Serve the numbers of this process at ``host:port`` (port 0: any that is free); once per process."""
    global _endpoint
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > _PORT_MAX:
        raise UsageError(
            f"an address to serve at must be host:port, got {address!r:.100}", hint="such as 127.0.0.1:9464"
        )
    with _lock:
        if _endpoint is None or _endpoint.process != os.getpid():
            try:
                _endpoint = Endpoint(host.strip("[]"), int(port))
            except OSError as problem:
                raise UsageError(f"numbers cannot be served at {address}: {problem}") from problem
        return _endpoint


def enter(feed: "Feed") -> None:
    """A feed was opened."""
    with _lock:
        _feeds.add(feed)
        asked = os.environ.get("PENSTOCK_METRICS", "")
        served = _endpoint is not None and _endpoint.process == os.getpid()
    if asked and not served:
        host, _, port = asked.rpartition(":")
        rank = os.environ.get("LOCAL_RANK", "0")
        if port.isdigit() and int(port) and rank.isdigit():
            asked = f"{host}:{int(port) + int(rank)}"
        try:
            serve(asked)
        except UsageError as problem:
            # Reading goes on without being watched.
            _log.warning("PENSTOCK_METRICS: %s", problem)


def leave(feed: "Feed") -> None:
    """A feed was closed; its numbers are no longer told."""
    with _lock:
        _feeds.discard(feed)


def text() -> str:
    """The numbers of all open feeds, in the format of Prometheus."""
    with _lock:
        feeds = sorted(_feeds, key=lambda feed: (feed.lane.number, feed.lane.of))
    families: dict[str, list[str]] = {}
    for number, feed in enumerate(feeds):
        labels = {"feed": str(number), "lane": f"{feed.lane.number}/{feed.lane.of}"}
        statistics = feed.statistics()
        for name, value, more in _samples(statistics):
            families.setdefault(name, []).append(_line(name, value, labels | more))
    store = next((feed.statistics().store for feed in feeds), {})
    for name, count in store.items():
        if count is not None:
            families.setdefault(f"penstock_store_{name}", []).append(
                _line(f"penstock_store_{name}", count, {})
            )
    lines: list[str] = []
    for name, samples in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name} {kind}", *samples]
    return "\n".join([*lines, ""])


def _samples(statistics: Any) -> Iterator[tuple[str, float, dict[str, str]]]:
    for name in ("batches", "rows", "tokens", "bytes", "stalls"):
        yield f"penstock_feed_{name}_total", getattr(statistics, name), {}
    yield "penstock_feed_stalled_seconds_total", statistics.stalled_s, {}
    yield "penstock_feed_ready_batches", statistics.ready, {}
    yield "penstock_feed_padding_share", statistics.padding_share, {}
    for stage, spread in statistics.stages.items():
        yield "penstock_feed_stage_seconds", spread.p50_s, {"stage": stage, "quantile": "0.5"}
        yield "penstock_feed_stage_seconds", spread.p99_s, {"stage": stage, "quantile": "0.99"}
    if statistics.sharing is not None:
        for name in ("made", "taken", "alone", "moves"):
            yield f"penstock_feed_share_{name}_total", getattr(statistics.sharing, name), {}
        yield "penstock_feed_share_kept_bytes", statistics.sharing.kept_bytes, {}
        yield "penstock_feed_share_members", statistics.sharing.members, {}


def _line(name: str, value: float, labels: dict[str, str]) -> str:
    escaped = (
        (key, label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for key, label in labels.items()
    )
    inside = ",".join(f'{key}="{label}"' for key, label in escaped)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


class _Answer(http.server.BaseHTTPRequestHandler):
    """One request."""

    timeout = _CLIENT_S

    def do_GET(self) -> None:
        """Answer ``/metrics``."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = text().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are nothing to tell."""
