"""Times, sizes, shares and rates as people read them: the same words on every screen."""

from collections.abc import Callable


def duration(nanoseconds: float) -> str:
    """A time span with a unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def size(count: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def percent(share: float) -> str:
    """A share of one."""
    return f"{100 * share:.1f} %"


def rate(count: float) -> str:
    """So many in a second."""
    return f"{count:,.0f}"


def measured(value: float | int | str, form: Callable[[float], str]) -> str:
    """A number of a report, or the word that stands where nothing was measured."""
    return value if isinstance(value, str) else form(value)


def number_of(count: int, noun: str) -> str:
    """``1 group``, ``1,024 workers``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
