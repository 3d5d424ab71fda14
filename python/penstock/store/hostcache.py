"""Which cache this host uses for what is far away: where it is, how much it may take, and opening it once per process.

``PENSTOCK_CACHE`` names the directory (``off`` uses none), else it is ``$PENSTOCK_HOME/cache``; ``PENSTOCK_CACHE_BYTES`` is what it may
take (``50G``, ``10%``). A cache that cannot be used is said once and done without: it is only ever a matter of speed.
"""

import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from penstock import _rust, events
from penstock.errors import UsageError
from penstock.store.contract import Store
from penstock.store.home import penstock_home

_LOG = logging.getLogger("penstock.store")
#: Of the disk, where nobody says anything else.
_SHARE = "20%"
#: Of the disk, and at most so many bytes, are left free whatever the limit.
_RESERVE_SHARE = 0.02
_RESERVE_BYTES = 4 << 30
_PATIENCE_S = 10.0
_PAUSE_S = 30.0

_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class CachePlace:
    """Where a cache is, and what it may take."""

    root: Path
    limit: str
    #: Whether somebody named the directory.
    explicit: bool
    patience_s: float = _PATIENCE_S

    def open(self) -> _rust.HostCache:
        """The cache. Raises ``OSError`` where it cannot be one."""
        total, _ = _rust.disk_room(self.root) or (0, 0)
        return _rust.HostCache(
            self.root,
            limit=self.limit,
            reserve_bytes=min(int(total * _RESERVE_SHARE), _RESERVE_BYTES),
            explicit=self.explicit,
            patience_s=self.patience_s,
            pause_s=_PAUSE_S,
        )


class _Used:
    """What this process uses, and what of the environment that followed from."""

    words: tuple[str | None, ...] = ()
    cache: _rust.HostCache | None = None


def cache_place() -> CachePlace | None:
    """As the environment says; None where no cache is wished for."""
    named = os.environ.get("PENSTOCK_CACHE", "")
    if named.lower() in ("off", "none", "0"):
        return None
    root = Path(named).expanduser().absolute() if named else penstock_home() / "cache"
    limit = os.environ.get("PENSTOCK_CACHE_BYTES", "") or _SHARE
    if _rust.parse_size(limit, root) is None:
        raise UsageError(f"PENSTOCK_CACHE_BYTES is {limit!r}", hint="give a size, as 50G, 800M or 10%")
    patience = os.environ.get("PENSTOCK_CACHE_PATIENCE_S", "")
    try:
        patience_s = float(patience) if patience else _PATIENCE_S
    except ValueError:
        raise UsageError(f"PENSTOCK_CACHE_PATIENCE_S is {patience!r}", hint="give seconds") from None
    return CachePlace(root, limit, bool(named), patience_s)


def use_host_cache() -> "_rust.HostCache | None":
    """Let what is opened from now on use the cache that the environment names; the cache, if there is one."""
    names = ("PENSTOCK_CACHE", "PENSTOCK_CACHE_BYTES", "PENSTOCK_CACHE_PATIENCE_S", "PENSTOCK_HOME", "HOME")
    words = tuple(map(os.environ.get, names))
    with _LOCK:
        if words != _Used.words:
            place = _wished_place()
            _Used.cache = None if place is None else _open(place)
            _rust.use_cache(_Used.cache)
            _Used.words = words
        return _Used.cache


def read_object(store: Store, name: str, digest: str) -> bytes:
    """A small object that is named by its content, through the cache if it is far away."""
    client = getattr(store, "client", None)
    if client is None or store.local_path(name) is not None:
        return store.get(name)
    use_host_cache()
    return _rust.read_object(client, name, digest)


def _wished_place() -> CachePlace | None:
    """A user without a home who names no cache reads without one."""
    if not os.environ.get("PENSTOCK_CACHE"):
        try:
            penstock_home()
        except UsageError as reason:
            _LOG.warning("working without a cache: %s (%s)", reason, reason.hint)
            return None
    return cache_place()


def _open(place: CachePlace) -> "_rust.HostCache | None":
    try:
        return place.open()
    except OSError as reason:
        events.record("cache.unusable", place=str(place.root), reason=str(reason))
        _LOG.warning("working without a cache: %s cannot be used: %s", place.root, reason)
        return None


def _forked() -> None:
    """In a child: the parent may have been opening a cache in another thread."""
    global _LOCK
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_forked)
