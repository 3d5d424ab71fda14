"""The record of a version: its number, its manifest's digest, and what people say about it."""

import datetime
import re
import uuid
from typing import TypeVar

import msgspec

from penstock.errors import AddressInvalid, ManifestDamaged, ManifestNewer

FORM = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_NAME_LENGTH_MAX = 200


class About(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What people say about a version; none of it changes what the version is."""

    note: str = ""
    owner: str = ""
    licence: str = ""
    #: Addresses by digest of the versions that this one was made from.
    derived_from: tuple[str, ...] = ()


class VersionEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Written once, put-if-absent, under the version's number."""

    form: int
    name: str
    number: int
    manifest: str
    #: Where the shards were when they were registered.
    root: str
    created: str = msgspec.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )
    about: About = About()
    #: Tells a writer whose answer got lost that the record it finds is its own.
    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """Another place where the shards of a version are."""

    form: int
    root: str
    created: str = msgspec.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a tag; the newest in its sequence counts."""

    form: int
    number: int
    created: str = msgspec.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )
    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)


T = TypeVar("T", "VersionEntry", "Root", "Tag")


def read(data: bytes, kind: type[T], *, name: str) -> T:
    """Read one of the documents above."""
    try:
        document = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise ManifestDamaged(name=name, reason=str(reason)) from reason
    if document.form > FORM:
        raise ManifestNewer(name=name, found=document.form, known=FORM)
    return document


def check_name(name: str) -> str:
    """The name of a dataset, or an error that says what is wrong with it."""
    _check_text(name)
    if len(name) > _NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        raise AddressInvalid(address=name, reason="the name has characters that names do not have")
    return name


def check_address(address: str) -> tuple[str, str]:
    """The two parts of an address: the name, and what follows the @."""
    _check_text(address)
    name, _, which = address.partition("@")
    check_name(name)
    if "@" in address and not which:
        raise AddressInvalid(address=address, reason="nothing follows the @")
    return name, which


def _check_text(words: object) -> None:
    if not isinstance(words, str):
        raise AddressInvalid(address=f"{words!r:.100}", reason=f"it must be text, got {type(words).__name__}")


def check_tag(tag: str) -> str:
    """A tag, which must not look like a number or a digest."""
    _check_text(tag)
    if _NAME.fullmatch(tag) is None or "/" in tag or tag.isdigit() or tag.startswith("b3:"):
        raise AddressInvalid(address=tag, reason="a tag is a word that is neither a number nor a digest")
    return tag
