"""What a server shows: one registry, the folders under which files may be opened, and the recordings of events.

A path that a page asks for is resolved, with every link in it, before it is compared with the folders: a link that points
out of them leads nowhere. Versions are immutable and keep their files open, so a few of them are kept.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from penstock.data.plan.plan import Plan
from penstock.errors import UsageError
from penstock.registry import Registry, Version
from penstock.view.model.tokens.samples import Samples
from penstock.view.opener import OpenedStream, Opener
from penstock.view.web.content.hosts import HostBoards, PlayedJob

_VERSIONS_KEPT = 32
_PLANS_KEPT = 8
_MEDIA_BYTES_KEPT = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Site:
    """The registry, the folders and the recordings that one server shows."""

    registry: Registry
    events_directory: Path
    #: Resolved folders; recipes and runs are opened below them only.
    roots: tuple[Path, ...] = ()
    #: What commands need to find the same registry, such as ``--registry NAME``; empty for the default one.
    option: str = ""
    #: Where jobs are found, whose hosts can be looked at.
    home: Path | None = None
    #: An imagined job that is played.
    played: PlayedJob | None = None
    hosts: HostBoards = field(init=False)
    versions: "Versions" = field(init=False)
    #: Keeps the plans and batches that were looked at last.
    opener: Opener = field(init=False)
    shelf: "Shelf" = field(init=False)
    _samples: list[tuple[Plan, Samples]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "roots", tuple(root.resolve() for root in self.roots))
        object.__setattr__(self, "versions", Versions(self.registry))
        object.__setattr__(self, "hosts", HostBoards(self.home, self.played))
        # One server shows one registry: pages link from batches to its rows.
        opener = Opener(self.registry, runs=self.roots, measure=False, own="refuse")
        object.__setattr__(self, "opener", opener)
        object.__setattr__(self, "shelf", Shelf())

    def command(self, words: str) -> str:
        """A command line to be copied, which finds the registry that is shown."""
        return f"penstock {words} {self.option}".rstrip()

    def samples_of(self, stream: OpenedStream) -> Samples:
        """The samples of a stream's plan; they keep tokenizers, so those of the last few plans are kept."""
        kept = next((samples for plan, samples in self._samples if plan is stream.plan), None)
        if kept is None:
            kept = Samples(stream.plan, stream.vocabularies)
            self._samples.append((stream.plan, kept))
            del self._samples[:-_PLANS_KEPT]
        return kept

    def file(self, name: str) -> Path:
        """The file or folder of a name, below one of the roots."""
        if "\0" in name or len(name) > os.pathconf("/", "PC_PATH_MAX"):
            raise outside(name)
        for root in self.roots:
            # An absolute name replaces the root, and has to lie below it all the same.
            path = Path(os.path.realpath(root / name))
            if path.is_relative_to(root) and path.exists():
                return path
        raise outside(name)


class Versions:
    """The versions looked at last, opened once. Safe from any thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: OrderedDict[str, Version] = OrderedDict()
        self._lock = Lock()

    def at(self, address: str) -> Version:
        """The version of an address; names and tags are looked up each time, since they move."""
        with self._lock:
            kept = self._kept.get(address)
            if kept is not None:
                self._kept.move_to_end(address)
                return kept
        version = self._registry.resolve(address)
        with self._lock:
            kept = self._kept.setdefault(version.address, version)
            while len(self._kept) > _VERSIONS_KEPT:
                self._kept.popitem(last=False)
        return kept


class Shelf:
    """The media asked for last, whole: a player asks for one film in a hundred ranges."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, key: object, read: Callable[[], bytes]) -> bytes:
        """The bytes of a key, read once while they are kept."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
        data = read()
        with self._lock:
            self._kept[key] = data
            while sum(map(len, self._kept.values())) > _MEDIA_BYTES_KEPT and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return data


def outside(name: str) -> UsageError:
    """The one answer for what is not there and for what may not be looked at: neither can be told from the other."""
    return UsageError(
        f"there is no {name[:200]!r} below the folders of this server",
        hint="penstock web --root FOLDER opens the files below it",
    )
