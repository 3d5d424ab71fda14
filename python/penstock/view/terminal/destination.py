"""Where a short text leads, seen from where one is: a whole address, or a part of one such as ``step=41207,row=5``."""

from dataclasses import replace

from penstock.errors import AddressInvalid
from penstock.view.address import Address, VersionAddress, parse

_PARTS = ("step=", "lane=", "row=", "token=")


def target(here: Address | None, text: str) -> Address:
    """The address that a text means. A number alone is a row of a version, or a step of a stream."""
    wanted = text.strip()
    if here is None or not (wanted.isdecimal() or wanted.startswith(_PARTS)):
        return parse(wanted)
    if isinstance(here, VersionAddress):
        number = wanted.removeprefix("row=")
        if not number.isdecimal():
            raise AddressInvalid(
                address=wanted, reason="a version has rows only", hint="type a number, or row=17"
            )
        return parse(f"{here.version}/row/{number}")
    part = f"step={wanted}" if wanted.isdecimal() else wanted
    # A token alone is one of the row where one is.
    if part.startswith("token="):
        part = f"row={here.place.row or 0},{part}"
    place = parse(f"x.toml#{part}").place  # type: ignore[union-attr]
    kept = here.place
    if place.step is not None or place.lane is not None:
        kept = replace(kept, row=None, token=None)
    elif place.row is not None:
        kept = replace(kept, token=None)
    given_parts = {
        name: value
        for name in ("step", "lane", "row", "token")
        if (value := getattr(place, name)) is not None
    }
    return replace(here, place=replace(kept, **given_parts))
