"""Files of a directory: links followed, nothing entered twice, and everything that is not taken said.

Folders are entered once, by device and inode, the real ones before those that links lead to; so a loop ends, a folder
behind two links comes once, and the names that a file gets do not depend on the order of a directory. A file with several
names (hard or symbolic links) keeps the first of its real ones.
"""

import os
import re
import stat
from collections import deque
from dataclasses import dataclass

from penstock.errors import FileUnusable, StoreDenied, StoreFailed
from penstock.registry.selection.glob_pattern import GlobPattern, States

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
#: A folder that has all of these is a registry, whose own documents are no data.
_REGISTRY = {"datasets", "objects", "scans", "work"}
#: Where git-annex and DVC keep files under the hashes of what is in them.
_CONTENTS = re.compile(r"/\.git/annex/objects/|/\.dvc/cache/")
HIDDEN = "hidden: its name begins with a dot"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that was found."""

    path: str
    status: os.stat_result
    #: Whether a link is on the way to it.
    linked: bool

    @property
    def identity(self) -> tuple[int, int] | str:
        """The same for all names of a file.

        Links into a store of contents are files of their own: two of them lead to one blob because their bytes are equal.
        """
        if self.linked and os.path.islink(self.path):
            target = os.path.realpath(self.path)
            if _CONTENTS.search(target) or is_hub_cache(os.path.dirname(os.path.dirname(target))):
                return self.path
        return self.status.st_dev, self.status.st_ino


def is_hub_cache(folder: str) -> bool:
    """Whether a folder is what the Hugging Face Hub's client keeps of one repository: blobs, and revisions of links to them."""
    return all(os.path.isdir(os.path.join(folder, name)) for name in ("blobs", "snapshots"))


def hub_revision(folder: str) -> str:
    """The one revision in the cache of a repository: its other folders hold the same bytes without names."""
    snapshots = os.path.join(folder, "snapshots")
    revisions = sorted(name for name in os.listdir(snapshots) if not name.startswith("."))
    if len(revisions) == 1:
        return os.path.join(snapshots, revisions[0])
    raise FileUnusable(
        path=folder,
        reason=f"it is a cache of the Hugging Face Hub with {len(revisions)} revisions",
        hint=f"name one of {', '.join(os.path.join('snapshots', revision) for revision in revisions[:4])}",
    )


def oddity(path: str, status: os.stat_result) -> str | None:
    """What is wrong with something that is neither a file nor a folder."""
    if stat.S_ISREG(status.st_mode):
        return None if _is_text(path) else "its name is not UTF-8"
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
    return f"{kind}, not a file"


def look_at(path: str) -> os.stat_result | str:
    """What a path leads to, or why it leads nowhere."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return f"a link to {os.readlink(path)}, which is not there" if os.path.islink(path) else "it is gone"
    except PermissionError as reason:
        raise StoreDenied(verb="read", url=path, reason=reason.strerror or str(reason)) from reason
    except OSError as reason:
        return f"it leads nowhere: {reason.strerror}"


class LocalTree:
    """A walk below one folder. ``files`` and ``left_out`` are filled by ``walk`` and ``match``."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.files: list[LocalFile] = []
        self.left_out: list[tuple[str, str]] = []
        self._entered: dict[tuple[int, int], str] = {}
        self._links: deque[str] = deque()

    def walk(self) -> "LocalTree":
        """Every file below the folder, hidden ones left out."""
        self._enter(self.top, linked=False)
        # Links are added while it goes, each folder is entered once.
        while self._links:
            self._enter(self._links.popleft(), linked=True)
        return self

    def match(self, pattern: GlobPattern) -> "LocalTree":
        """Every file that a pattern below the folder matches."""
        waiting = [_Place(self.top, pattern.start, ())]
        # A folder that is one of those above it is not entered again, so every way down ends.
        while waiting:
            waiting += self._match(waiting.pop(), pattern)
        return self

    def _enter(self, folder: str, *, linked: bool) -> None:
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            if not self._first_time(here):
                continue
            folders = []
            entries = _entries(here)
            if {name for name, _ in entries} >= _REGISTRY:
                self.left_out.append((here, "a registry of Penstock"))
                continue
            if is_hub_cache(here):
                folders.append(hub_revision(here))
                entries = []
            for name, is_link in entries:
                path = os.path.join(here, name)
                if name.startswith("."):
                    self.left_out.append((path, HIDDEN))
                    continue
                status = look_at(path)
                if isinstance(status, str):
                    self.left_out.append((path, status))
                elif not stat.S_ISDIR(status.st_mode):
                    self._add(path, status, linked=linked or is_link)
                elif is_link:
                    self._links.append(path)
                else:
                    folders.append(path)
            waiting += reversed(folders)

    def _first_time(self, folder: str) -> bool:
        status = os.stat(folder)
        identity = (status.st_dev, status.st_ino)
        before = self._entered.setdefault(identity, folder)
        if before == folder:
            return True
        name = os.path.relpath(before, self.top)
        above = (folder + os.sep).startswith(os.path.join(before, ""))
        reason = (
            "a link to a folder above it" if above else f"a link to {name}, whose files are taken already"
        )
        self.left_out.append((folder, reason))
        return False

    def _match(self, place: "_Place", pattern: GlobPattern) -> "list[_Place]":
        """Files of one folder that match; the folders below it that may have more."""
        folders = []
        literal = pattern.literal(place.states)
        for name in [literal] if literal is not None else [name for name, _ in _entries(place.folder)]:
            after = pattern.step(place.states, name)
            path = os.path.join(place.folder, name)
            if not after or (literal is not None and not os.path.lexists(path)):
                continue
            status = look_at(path)
            if isinstance(status, str):
                if pattern.is_end(after):
                    self.left_out.append((path, status))
            elif not stat.S_ISDIR(status.st_mode):
                if pattern.is_end(after):
                    self._add(path, status, linked=place.linked or os.path.islink(path))
            elif not pattern.goes_on(after):
                self.left_out.append((path, "a folder: a pattern takes files"))
            elif (status.st_dev, status.st_ino) not in place.above:
                above = (*place.above, (status.st_dev, status.st_ino))
                folders.append(_Place(path, after, above, place.linked or os.path.islink(path)))
        return folders

    def _add(self, path: str, status: os.stat_result, *, linked: bool) -> None:
        if (reason := oddity(path, status)) is not None:
            self.left_out.append((path, reason))
        else:
            self.files.append(LocalFile(path, status, linked))


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder on the way of a pattern."""

    folder: str
    states: States
    #: Device and inode of this folder and those above it.
    above: tuple[tuple[int, int], ...]
    linked: bool = False


def once_each(files: list[LocalFile]) -> tuple[list[LocalFile], list[tuple[LocalFile, LocalFile]]]:
    """Files without their further names, and those names each with the file that it is."""
    kept: dict[tuple[int, int] | str, LocalFile] = {}
    twice = []
    for file in sorted(files, key=lambda file: (file.linked, file.path)):
        first = kept.setdefault(file.identity, file)
        if first.path != file.path:
            twice.append((file, first))
    return sorted(kept.values(), key=lambda file: file.path), twice


def named_file(path: str) -> LocalFile:
    """A file that was named itself: it is taken, or refused."""
    status = look_at(path)
    reason = status if isinstance(status, str) else oddity(path, status)
    if reason is not None:
        hint = "write what comes out of it to a file: registered files are read again, from anywhere"
        piped = "FIFO" in reason or "device" in reason or "socket" in reason
        raise FileUnusable(path=path, reason=f"it is {reason}", hint=hint if piped else None)
    assert not isinstance(status, str)
    return LocalFile(path, status, linked=False)


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Names in a folder, sorted, and whether each is a link."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_symlink()) for entry in entries)
    except FileNotFoundError:
        # Deleted since its name was read.
        return []
    except NotADirectoryError:
        return []
    except PermissionError as reason:
        raise StoreDenied(verb="list", url=folder, reason=reason.strerror or str(reason)) from reason
    except OSError as reason:
        raise StoreFailed(verb="list", url=folder, reason=reason.strerror or str(reason)) from reason


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
