"""Answers that have one of several forms.

A union of two TypedDicts is fine for mypy, and msgspec refuses it because it could not decode one. So type checkers see the union,
and at run time the name is a class that only knows its forms, which ``schema`` writes down as ``anyOf``.
"""

from typing import Any


class OneOf:
    """A class of this kind stands for any of its forms; it has no instances."""

    forms: tuple[type, ...] = ()


def one_of(name: str, *forms: Any) -> type[OneOf]:
    """The class that stands for an answer of several forms, each a TypedDict."""
    return type(name, (OneOf,), {"forms": forms})
