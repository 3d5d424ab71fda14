"""From what a person names (files, patterns, folders, URLs) to the files that may be data.

A name that exists is that file or folder, whatever characters it has. Otherwise it is a pattern, if it has any of ``*?[``. What is
named itself is taken or refused; what a folder or pattern leads to may also be left out, with a reason.
"""

import os
import re
from dataclasses import dataclass, field

from penstock.errors import FileUnusable, NothingToRegister, ObjectMissing, StoreFailed
from penstock.registry.selection.glob_pattern import GlobPattern, is_pattern
from penstock.registry.selection.local_tree import (
    HIDDEN,
    LocalFile,
    LocalTree,
    hub_revision,
    is_hub_cache,
    named_file,
    once_each,
)
from penstock.store import join, to_path, to_url
from penstock.store.local import stamp_of
from penstock.store.location import is_remote, is_web, split
from penstock.store.remote import RemoteStore

_FILES_MAX = 10_000_000
#: Empty parts of keys, parts that mean another place, and characters that no header may have.
_UNNAMEABLE = re.compile(r"(?P<empty>//|^/)|(?<![^/])\.{1,2}(?![^/])|[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be data."""

    url: str
    bytes: int
    #: Changes whenever the file does.
    stamp: str
    #: The folder that was given, or what stands before a pattern; of a file that was named, its folder.
    base: str
    #: Whether it was named itself.
    named: bool = False
    #: Whether it was found in a folder, rather than by a pattern.
    in_folder: bool = False


@dataclass(slots=True)
class Candidates:
    """Everything that the places lead to."""

    files: list[Candidate] = field(default_factory=list)
    #: Path or URL, and why it is not taken.
    left_out: list[tuple[str, str]] = field(default_factory=list)
    #: The folders that were given, or what stands before patterns, as paths or URLs.
    tops: list[str] = field(default_factory=list)


def find(places: list[str]) -> Candidates:
    """Every file that the places lead to, each once, sorted by URL."""
    candidates = Candidates()
    local: list[tuple[LocalFile, Candidate]] = []
    for place in places:
        url = to_url(place)
        folders_only = place.endswith("/")
        if is_remote(url):
            _find_remote(url, candidates, folders_only=folders_only)
        else:
            written = _parts_written(place)
            local += _find_local(str(to_path(url)), written, candidates, folders_only=folders_only)
    # A file that is named, and found by a pattern too, is named.
    by_path: dict[str, tuple[LocalFile, Candidate]] = {}
    for file, candidate in sorted(local, key=lambda pair: not pair[1].named):
        by_path.setdefault(file.path, (file, candidate))
    kept, twice = once_each([file for file, _ in by_path.values()])
    for file, first in twice:
        beside = os.path.relpath(first.path, os.path.dirname(file.path))
        candidates.left_out.append((file.path, f"the same file as {beside}"))
    candidates.files += [by_path[file.path][1] for file in kept]
    unique: dict[str, Candidate] = {}
    for candidate in sorted(candidates.files, key=lambda candidate: (candidate.url, not candidate.named)):
        unique.setdefault(candidate.url, candidate)
    if not unique:
        raise NothingToRegister(patterns=places, left_out=dict(candidates.left_out))
    if len(unique) > _FILES_MAX:
        raise NothingToRegister(patterns=[f"{places[0]} (more than {_FILES_MAX:,} files)"])
    candidates.files = list(unique.values())
    return candidates


def _parts_written(place: str) -> int | None:
    """How many of the last parts of its path a place says itself; None for all. The rest is the folder one stands in, or home."""
    if "://" in place or os.path.isabs(place):
        return None
    below = place.partition("/")[2] if place.startswith("~") else place
    return sum(part not in (".", "..") for part in os.path.normpath(below).split("/"))


def _find_local(
    path: str, written: int | None, candidates: Candidates, *, folders_only: bool
) -> list[tuple[LocalFile, Candidate]]:
    if os.path.isdir(path):
        top = _hub_revision(path)
        tree = LocalTree(top).walk()
        in_folder = True
    elif os.path.lexists(path):
        candidates.tops.append(os.path.dirname(path))
        file = named_file(path)
        return [(file, _candidate(file, os.path.dirname(path), named=True))]
    elif (first := _first_wild(parts := path.split("/"), written)) is not None:
        if folders_only:
            return []
        top = "/".join(parts[:first]) or "/"
        tree = LocalTree(top).match(GlobPattern(parts[first:]))
        in_folder = False
    else:
        return []
    candidates.tops.append(top)
    candidates.left_out += tree.left_out
    return [(file, _candidate(file, top, in_folder=in_folder)) for file in tree.files]


def _first_wild(parts: list[str], written: int | None) -> int | None:
    """The first of the parts that is a pattern; what was not written never is."""
    start = 0 if written is None else len(parts) - written
    return next((at for at, part in enumerate(parts) if at >= start and is_pattern(part)), None)


def _candidate(file: LocalFile, base: str, *, named: bool = False, in_folder: bool = False) -> Candidate:
    status = file.status
    return Candidate(
        url=to_url(file.path),
        bytes=status.st_size,
        stamp=stamp_of(status),
        base=to_url(base),
        named=named,
        in_folder=in_folder,
    )


def _hub_revision(folder: str) -> str:
    """In the cache of the Hugging Face Hub, the one revision there is; of its folder of revisions, the same."""
    above = os.path.dirname(os.path.abspath(folder))
    if os.path.basename(os.path.abspath(folder)) == "snapshots" and is_hub_cache(above):
        return hub_revision(above)
    return hub_revision(folder) if is_hub_cache(folder) else folder


def _find_remote(url: str, candidates: Candidates, *, folders_only: bool) -> None:
    scheme, _, key = url.partition("://")
    _, slash, name = key.partition("/")
    if _UNNAMEABLE.search(name):
        raise FileUnusable(path=url, reason=_why_unnameable(name), hint="copy the object to another key")
    if slash and (named := _named_object(url)) is not None:
        # An empty object that has others below it is what some tools leave so that there seems to be a folder.
        if named.bytes == 0 and _list(url, "", None, candidates):
            return
        candidates.files.append(named)
        candidates.tops.append(named.base)
        return
    if _list(url, "", None, candidates) or not is_pattern(name) or folders_only:
        return
    parts = name.split("/")
    first = next(at for at, part in enumerate(parts) if is_pattern(part))
    root = "/".join([f"{scheme}://{key.partition('/')[0]}", *parts[:first]])
    beginning = parts[first][: next(at for at, mark in enumerate(parts[first]) if is_pattern(mark))]
    _list(root, beginning, GlobPattern(parts[first:]), candidates)


def _why_unnameable(name: str) -> str:
    what = _UNNAMEABLE.search(name)
    part = "an empty part ('//')" if what is None or what["empty"] is not None else f"the part {what[0]!r}"
    return f"its key has {part}, which no request can name"


def _named_object(url: str) -> Candidate | None:
    root, name = split(url)
    try:
        entry = RemoteStore(root).describe(name)
    except ObjectMissing:
        return None
    return Candidate(url=url, bytes=entry.bytes, stamp=entry.stamp, base=root, named=True)


def _list(root: str, beginning: str, pattern: GlobPattern | None, candidates: Candidates) -> bool:
    """Objects below a root whose names begin so and match; whether there was any."""
    try:
        entries, unreadable = RemoteStore(root).entries_beginning(beginning)
    except StoreFailed as problem:
        if not is_web(root):
            raise
        reason = "the file does not exist, and as a folder it cannot be listed"
        raise FileUnusable(path=root, reason=reason, hint="name each file by its URL") from problem
    folders = {entry.name.rpartition("/")[0] for entry in entries}
    before = len(candidates.files) + len(candidates.left_out)
    for entry in entries:
        if entry.bytes == 0 and entry.name in folders:
            # What consoles make so that an empty folder can be shown.
            continue
        if pattern is None and any(part.startswith(".") for part in entry.name.split("/")):
            candidates.left_out.append((join(root, entry.name), HIDDEN))
        elif pattern is None or pattern.matches(entry.name):
            url = join(root, entry.name)
            candidates.files.append(Candidate(url, entry.bytes, entry.stamp, root, in_folder=pattern is None))
    for name in unreadable:
        if pattern is None or pattern.matches(name):
            candidates.left_out.append((join(root, name), _why_unnameable(name)))
    candidates.tops.append(root)
    return len(candidates.files) + len(candidates.left_out) > before
