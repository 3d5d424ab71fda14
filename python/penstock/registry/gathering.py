"""From what a person names (files, patterns, folders, URLs) to the list of files to register, in a stable order."""

import fnmatch
import os
from collections.abc import Iterable
from pathlib import PurePosixPath

from penstock.errors import NothingToRegister, ObjectMissing
from penstock.formats.contract import RawFile
from penstock.store import Store, is_remote, join, open_store, relative, to_url
from penstock.store.location import common_root, split

_WILD = frozenset("*?[")
_FILES_MAX = 10_000_000
#: Files that other tools leave beside data; they are no shards.
_BESIDE = ("_SUCCESS", "*.crc", "*.md5", "*.sha256", "Thumbs.db", "dataset_info.json", "state.json")


def gather(places: Iterable[str | os.PathLike[str]]) -> list[RawFile]:
    """Every file that the places name, sorted by URL, each once, below their common root."""
    given = [os.fspath(place) for place in places]
    found: dict[str, None] = {}
    for place in given:
        for url in sorted(_expand(place)):
            found.setdefault(url, None)
    if not found:
        raise NothingToRegister(patterns=given)
    root = common_root(list(found))
    store = open_store(root)
    return [_describe(store, relative(url, root)) for url in sorted(found)]


def _describe(store: Store, name: str) -> RawFile:
    entry = store.describe(name)
    return RawFile(store, name, entry.bytes, entry.stamp)


def _expand(place: str) -> list[str]:
    url = to_url(place)
    parts = url.split("/")
    first = next((at for at, part in enumerate(parts) if _WILD & set(_unquoted(part, url))), None)
    if first is not None:
        root = "/".join(parts[:first])
        pattern = "/".join(_unquoted(part, url) for part in parts[first:])
        return [join(root, name) for name in _names(root) if _matches(name, pattern)]
    root, name = split(url)
    try:
        store = open_store(root)
        path = store.local_path(name)
        if path is None or path.is_file():
            store.describe(name)
            return [url]
    except ObjectMissing:
        pass
    return [join(url, name) for name in _names(url) if not _is_beside(name)]


def _names(root: str) -> list[str]:
    store = open_store(root)
    names: list[str] = []
    for entry in store.entries():
        hidden = any(part.startswith(".") for part in entry.name.split("/"))
        if not hidden:
            names.append(entry.name)
        if len(names) > _FILES_MAX:
            raise NothingToRegister(patterns=[f"{root} (more than {_FILES_MAX:,} files)"])
    return names


def _matches(name: str, pattern: str) -> bool:
    """Shell patterns: ``*`` stays within a part of the path, ``**`` crosses them."""
    if "**" in pattern:
        return fnmatch.fnmatchcase(name, pattern.replace("**/", "*"))
    return name.count("/") == pattern.count("/") and all(
        fnmatch.fnmatchcase(part, wanted)
        for part, wanted in zip(name.split("/"), pattern.split("/"), strict=True)
    )


def _is_beside(name: str) -> bool:
    last = PurePosixPath(name).name
    return any(fnmatch.fnmatchcase(last, pattern) for pattern in _BESIDE)


def _unquoted(part: str, url: str) -> str:
    from urllib.parse import unquote

    return part if is_remote(url) else unquote(part)
