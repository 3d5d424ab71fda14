"""Digests of whole steps, however many lanes they are read by."""

import penstock as ps
from penstock.data import join


def first_digests(recipe: ps.Recipe, registry: ps.Registry, steps: int, *, lanes: int = 1) -> list[str]:
    """The digests of the first steps of a recipe."""
    feeds = [ps.open(recipe, registry=registry, lane=ps.Lane(k, of=lanes)) for k in range(lanes)]
    try:
        return [join([next(feed).digest for feed in feeds]) for _ in range(steps)]
    finally:
        for feed in feeds:
            feed.close()
