"""Addresses: one short text for everything that can be looked at, the same in a shell, in a browser and in Python.

::

    web@3                                     a version
    web@3/row/17                              a row of it
    recipe.toml#step=41207,lane=3/8,row=5     a batch of a recipe, or a place in it
    run:runs/exp1                             a run
    run:runs/exp1#step=120                    a batch of it; its recipe, skips and lanes are known
    runs:runs                                 all runs below a folder, side by side

``parse`` reads one and ``str`` writes it again. No shell splits an address and no URL has to be written differently: whatever
else a path has is written as ``%20``. The browser shows an address as ``…/#/a/ADDRESS``; such a whole URL is an address too.
A name that could be a version and a recipe (``web@v2.toml``) is a version; ``./web@v2.toml`` is the file.
"""

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote, unquote

from penstock.errors import AddressInvalid, RecipeInvalid

if TYPE_CHECKING:
    from penstock.data.feed.lane import Lane

#: Longer ones are no addresses.
LENGTH_MAX = 4096
#: How the address begins in the URL of a browser.
IN_URL = "#/a/"
RUN = "run:"
RUNS = "runs:"
#: What recipes are called.
RECIPES = (".toml", ".json")
#: What a path keeps, beside letters and digits.
_PLAIN = "/@:+,="
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*"
_VERSION = re.compile(rf"{_NAME}(?:@[A-Za-z0-9][A-Za-z0-9._:-]*)?")
_ROW = re.compile(rf"({_NAME}@[A-Za-z0-9][A-Za-z0-9._:-]*)/row/(\d+)")
_NUMBER_MAX = 1 << 63
_HINT = (
    "addresses look like web@3, web@3/row/17, recipe.toml#step=7,lane=3/8,row=5,token=120 or run:NAME#step=7"
)


@dataclass(frozen=True, slots=True)
class VersionAddress:
    """A version, or a row of it."""

    version: str
    row: int | None = None

    def __str__(self) -> str:
        return self.version if self.row is None else f"{self.version}/row/{self.row}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a stream of batches; what is None is left open."""

    step: int | None = None
    lane: "Lane | None" = None
    #: A row of the lane's batch, and a token of the row.
    row: int | None = None
    token: int | None = None

    def __str__(self) -> str:
        parts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ",".join(f"{name}={value}" for name, value in parts if value is not None)


@dataclass(frozen=True, slots=True)
class RecipeAddress:
    """A recipe's file, and a place in its stream."""

    path: str
    place: Place = Place()

    def __str__(self) -> str:
        return _placed(_quoted(self.path), self.place)


@dataclass(frozen=True, slots=True)
class RunAddress:
    """A run's directory or name, and a place in its stream."""

    run: str
    place: Place = Place()

    def __str__(self) -> str:
        return _placed(RUN + _quoted(self.run), self.place)


@dataclass(frozen=True, slots=True)
class RunsAddress:
    """A folder of runs."""

    folder: str

    def __str__(self) -> str:
        return RUNS + _quoted(self.folder)


StreamAddress: TypeAlias = RecipeAddress | RunAddress
Address: TypeAlias = VersionAddress | StreamAddress


def parse(text: str) -> Address:
    """The address that a text is, or a whole URL that shows one."""
    address = text.strip()
    if not address or len(address) > LENGTH_MAX:
        reason = (
            f"it has {len(address):,} characters, at most {LENGTH_MAX:,} are read"
            if address
            else "it is empty"
        )
        raise AddressInvalid(address=address[:100], reason=reason, hint=_HINT)
    if address.startswith((IN_URL, "http://", "https://")):
        address = _in_url(address)
    if (row := _ROW.fullmatch(address)) is not None:
        return VersionAddress(row[1], _number(address, "row", row[2]))
    path, hash_, rest = address.partition("#")
    if path.startswith(RUNS):
        hint = f"penstock web {address[:200]}, or penstock runs list FOLDER"
        raise _refusal(address, "it is a folder of runs, and only a browser shows several", hint)
    if path.startswith(RUN):
        return RunAddress(_path(address, path.removeprefix(RUN)), _place(address, rest, hash_))
    if path.lower().endswith(RECIPES) and not ("@" in path and _VERSION.fullmatch(path)):
        return RecipeAddress(_path(address, path), _place(address, rest, hash_))
    if hash_:
        raise _refusal(address, f"{path!r} is neither a recipe ({', '.join(RECIPES)}) nor a run ({RUN}NAME)")
    if _VERSION.fullmatch(address) is None:
        raise _refusal(address, "it is neither a version nor a recipe nor a run")
    return VersionAddress(address)


def parse_runs(text: str) -> RunsAddress | None:
    """The folder of runs that an address, or a whole URL that shows one, means; None where it is the address of something else."""
    address = text.strip()[: LENGTH_MAX + 1]
    if address.startswith((IN_URL, "http://", "https://")):
        address = _in_url(address)
    if not address.startswith(RUNS) or len(address) > LENGTH_MAX:
        return None
    return RunsAddress(_path(address, address.removeprefix(RUNS)))


def in_url(address: Address | RunsAddress) -> str:
    """How an address stands in the URL of a browser."""
    return IN_URL + quote(str(address), safe=_PLAIN)


def at(address: StreamAddress, **changed: object) -> StreamAddress:
    """The same stream at another place: ``at(address, step=7, row=None)``."""
    return replace(address, place=replace(address.place, **changed))  # type: ignore[arg-type]


def _in_url(url: str) -> str:
    _, separator, after = url.partition(IN_URL)
    if not separator:
        raise _refusal(url, f"the URL shows no address: there is no {IN_URL} in it")
    # What follows a question mark is how it is shown.
    return unquote(after.partition("?")[0])


def _path(address: str, path: str) -> str:
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        decoded = ""
    if not decoded or "\0" in decoded:
        raise _refusal(address, "its path is empty")
    return decoded


def _quoted(path: str) -> str:
    """A path as addresses have it; a shell would make something else of a tilde."""
    return quote(path, safe=_PLAIN).replace("~", "%7E")


def _place(address: str, rest: str, hash_: str) -> Place:
    if not rest:
        if hash_:
            raise _refusal(address, "nothing follows the #")
        return Place()
    known = [field.name for field in fields(Place)]
    values: dict[str, int | Lane] = {}
    for part in rest.split(","):
        name, equals, value = part.partition("=")
        if name not in known or not equals:
            raise _refusal(address, f"{part!r} is none of {', '.join(f'{option}=…' for option in known)}")
        if name in values:
            raise _refusal(address, f"it says {name} twice")
        values[name] = _lane(address, value) if name == "lane" else _number(address, name, value)
    if "token" in values and "row" not in values:
        raise _refusal(address, "token=… needs row=…")
    return Place(**values)  # type: ignore[arg-type]


def _lane(address: str, value: str) -> "Lane":
    # Everything about data comes along, which a first screen need not wait for.
    from penstock.data.feed.lane import parse_lane

    try:
        return parse_lane(value)
    except RecipeInvalid as reason:
        raise _refusal(address, str(reason)) from reason


def _number(address: str, name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or len(value) > 19 or int(value) >= _NUMBER_MAX:
        raise _refusal(address, f"{name} must be a whole number from 0, got {value[:40]!r}")
    return int(value)


def _placed(path: str, place: Place) -> str:
    words = str(place)
    return f"{path}#{words}" if words else path


def _refusal(address: str, reason: str, hint: str = _HINT) -> AddressInvalid:
    return AddressInvalid(address=address[:200], reason=reason, hint=hint)
