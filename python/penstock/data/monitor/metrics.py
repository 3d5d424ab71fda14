"""Numbers of all feeds of this process for Prometheus; off unless asked for.

``serve("127.0.0.1:9464")`` starts one small server per process; opening a feed does so where ``PENSTOCK_METRICS`` names an address. Ranks
of one host that share the setting take the port after it with their ``LOCAL_RANK``. It answers GET ``/metrics`` and nothing else.

In a run that is watched (``publish``) the process serves nothing: its numbers are in a mapped page, and the watcher serves those of all ranks.
"""

import logging
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.data.monitor.endpoint import Endpoint
from penstock.data.monitor.exposition import Family, Sample, exposition
from penstock.data.monitor.feed_page import FeedPage
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.data.feed.feed import Feed

_log = logging.getLogger("penstock.data")
_lock = threading.Lock()
_feeds: "weakref.WeakSet[Feed]" = weakref.WeakSet()
_endpoint: "Endpoint | None" = None
#: Whether the server was started because the environment asked for it.
_is_asked = False
_page: FeedPage | None = None
FAMILIES = {
    "penstock_feed_batches_total": Family("counter", "Batches that the feed has handed out."),
    "penstock_feed_rows_total": Family("counter", "Rows that the feed has handed out."),
    "penstock_feed_tokens_total": Family("counter", "Tokens that the feed has handed out, without padding."),
    "penstock_feed_bytes_total": Family("counter", "Bytes of the values that the feed has handed out."),
    "penstock_feed_stalls_total": Family("counter", "Waits for a batch that took longer than the limit."),
    "penstock_feed_stalled_seconds_total": Family("counter", "Seconds of such waits that are over."),
    "penstock_feed_ready_batches": Family("gauge", "Batches that are ready and wait to be asked for."),
    "penstock_feed_padding_share": Family("gauge", "Share of tokens that are padding."),
    "penstock_feed_stage_seconds": Family("summary", "How long a stage takes for a batch."),
    "penstock_feed_share_made_total": Family("counter", "Shared batches that this process made."),
    "penstock_feed_share_taken_total": Family("counter", "Shared batches that another process made."),
    "penstock_feed_share_alone_total": Family(
        "counter", "Batches made alone, although they could be shared."
    ),
    "penstock_feed_share_moves_total": Family("counter", "How often another process took the table over."),
    "penstock_feed_share_kept_bytes": Family("gauge", "Bytes of shared batches that are kept."),
    "penstock_feed_share_members": Family("gauge", "Processes that share the lane."),
}
FAMILIES |= {
    f"penstock_store_{what}_seconds": Family(
        "summary", f"How long stores take, by what is waited for: {what}."
    )
    for what in ("answer", "read", "write", "turn", "pause")
}


def serve(address: str) -> Endpoint:
    """Serve the numbers of this process at ``host:port`` (port 0: any that is free); once per process."""
    global _endpoint
    with _lock:
        if _endpoint is None or _endpoint.process != os.getpid() or _endpoint.is_closed:
            _endpoint = Endpoint(address, text)
        return _endpoint


def publish(folder: Path, life: int, rank: int) -> FeedPage | None:
    """Write the numbers of this process into a page from now on, and serve none; None where no page can be written."""
    global _page, _is_asked
    with _lock:
        if _endpoint is not None and _is_asked and _endpoint.process == os.getpid():
            # Its port is the watcher's now.
            _endpoint.close()
            _is_asked = False
    try:
        page = FeedPage(folder, life, rank, samples)
    except OSError as problem:
        _log.warning("numbers of feeds are not told, training goes on: %s", problem)
        return None
    _page = page
    return page


def withdraw(page: FeedPage) -> None:
    """The run is over; the page keeps what was counted last."""
    global _page
    page.close()
    if _page is page:
        _page = None


def enter(feed: "Feed") -> None:
    """A feed was opened."""
    global _is_asked
    with _lock:
        _feeds.add(feed)
        asked = os.environ.get("PENSTOCK_METRICS", "")
        served = _endpoint is not None and _endpoint.process == os.getpid() and not _endpoint.is_closed
    if asked and not served and _page is None and not os.environ.get("PENSTOCK_WATCHED"):
        host, _, port = asked.rpartition(":")
        rank = os.environ.get("LOCAL_RANK", "0")
        if port.isdigit() and int(port) and rank.isdigit():
            asked = f"{host}:{int(port) + int(rank)}"
        try:
            serve(asked)
            _is_asked = True
        except UsageError as problem:
            # Reading goes on without being watched.
            _log.warning("PENSTOCK_METRICS: %s", problem)


def leave(feed: "Feed") -> None:
    """A feed was closed; its numbers are no longer told."""
    with _lock:
        _feeds.discard(feed)


def text() -> str:
    """The numbers of all open feeds, in the format of Prometheus."""
    return exposition(samples(), FAMILIES)


def samples() -> Iterator[Sample]:
    """The numbers of all open feeds, and of the stores that they read."""
    with _lock:
        feeds = sorted(_feeds, key=lambda feed: (feed.lane.number, feed.lane.of))
    statistics = [feed.statistics() for feed in feeds]
    for number, (feed, of_feed) in enumerate(zip(feeds, statistics, strict=True)):
        labels = {"feed": str(number), "lane": f"{feed.lane.number}/{feed.lane.of}"}
        for name, value, more in _samples(of_feed):
            yield Sample(name, value, labels | more)
    for name, count in (statistics[0].store if statistics else {}).items():
        if count is not None:
            yield _store_sample(name, count)


def _store_sample(name: str, count: float) -> Sample:
    """Durations are summaries in seconds; what is counted keeps its name."""
    for ending, quantile in (("_p50_s", "0.5"), ("_p99_s", "0.99")):
        if name.endswith(ending):
            family = f"penstock_store_{name.removesuffix(ending)}_seconds"
            return Sample(family, count, {"quantile": quantile})
    if name.endswith("_times"):
        return Sample(f"penstock_store_{name.removesuffix('_times')}_seconds_count", count)
    return Sample(f"penstock_store_{name}", count)


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
