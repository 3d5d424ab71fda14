"""Places as URLs: ``file:///data/web``, ``s3://bucket/web``; plain paths are accepted and made absolute."""

import os
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.errors import UsageError

SCHEMES = ("file", "memory", "s3", "gs", "az", "http", "https")


def to_url(place: str | os.PathLike[str]) -> str:
    """A path or URL as a URL without a trailing slash."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else place
    if not isinstance(text, str):
        raise UsageError(f"a place must be a path or a URL, got {place!r:.100}")
    scheme = text.partition("://")[0] if "://" in text else ""
    if not scheme:
        return _of_path(os.path.abspath(os.path.expanduser(text)))
    if scheme not in SCHEMES:
        raise UsageError(f"a place must be a path or a URL of {', '.join(SCHEMES)}, got {text!r:.200}")
    return text.rstrip("/") if text.rstrip("/") != f"{scheme}:" else f"{scheme}://"


def _of_path(path: str) -> str:
    try:
        return "file://" + quote(path).rstrip("/")
    except UnicodeEncodeError as reason:
        raise UsageError(f"the path {os.fsencode(path)!r} is not UTF-8", hint="rename it") from reason


def to_path(url: str) -> Path:
    """The local path of a ``file://`` URL."""
    # Not by the rules of the web: `?` and `#` are characters of names and patterns.
    _, slash, path = url.removeprefix("file://").partition("/")
    return Path(unquote(slash + path) or "/")


def is_remote(url: str) -> bool:
    """Whether the bytes are somewhere else than in this machine's file system."""
    return not url.startswith("file://")


def join(root: str, name: str) -> str:
    """The URL of a name below a root."""
    return f"{root}/{quote(name) if not is_remote(root) else name}"


def relative(url: str, root: str) -> str:
    """The name of a URL below a root."""
    assert url.startswith(root + "/"), f"{url} is not below {root}"
    name = url[len(root) + 1 :]
    return unquote(name) if not is_remote(root) else name


def split(url: str) -> tuple[str, str]:
    """Root and name of a single object: its parent, and the last part."""
    parent, _, name = url.rpartition("/")
    return parent, unquote(name) if not is_remote(url) else name


def common_root(urls: list[str]) -> str:
    """The deepest place that holds all of the given objects."""
    parents = [url.rpartition("/")[0].split("/") for url in urls]
    shared = 0
    for parts in zip(*parents, strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    return "/".join(parents[0][:shared])


def is_web(url: str) -> bool:
    """Whether it is a place on a web server: it has files, is never written, and few of them list folders."""
    return url.startswith(("http://", "https://"))
