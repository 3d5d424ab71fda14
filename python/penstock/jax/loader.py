"""The loader: a recipe as a JAX training loop wants it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from penstock.data import Feed, Recipe
from penstock.data import open as open_feed
from penstock.data.feed.options import ReadKeywords, ReadOptions
from penstock.data.feed.prefetch import Prefetch
from penstock.errors import UsageError
from penstock.jax.batch import Batch
from penstock.jax.placement import Fields, Placement
from penstock.registry import Registry


class Loader(Prefetch[Batch]):
    """Batches of global arrays. A loop over it continues where the last one stopped.

    Its ``state_dict`` is the same on every process, and the same as that of ``penstock.torch``: either resumes the other.
    """

    def __init__(self, feed: Feed, placement: Placement, *, prefetch: int, options: ReadOptions) -> None:
        super().__init__(feed, placement, prefetch=prefetch, options=options)
        self.sharding: NamedSharding = placement.sharding


def loader(
    recipe: Recipe | Feed,
    *,
    mesh: Mesh | None = None,
    axis: str | Sequence[str] = "data",
    registry: Registry | None = None,
    fields: Fields | None = None,
    prefetch: int = 2,
    **reading: Unpack[ReadKeywords],
) -> Loader:
    """Open a recipe for a JAX loop, or take over a feed that was opened with more than a recipe (skips, say).

    ``mesh``: over which rows are spread along ``axis`` (or several axes) and whole along the others; all devices unless given.
    The lane of this process follows from the mesh. ``fields``: names, or names with types, such as
    ``{"tokens": "int32", "loss_mask": "float32"}``; None for the type as stored. By default ``tokens`` and ``segments``, and of records all,
    which then have to be numbers. ``prefetch``: batches on the devices before
    they are asked for. ``threads``: of the feed, which read further ahead in host memory. ``share``: with processes of this host that read
    the same lane (see ``penstock.open``). ``stall_s``: how long a wait may last before it is told.
    """
    placement = Placement(mesh or all_devices(axis), axis)
    plain_recipe = recipe.plan.recipe if isinstance(recipe, Feed) else recipe
    for _, rows in plain_recipe.batch_schedule:
        placement.check(rows)
    if isinstance(recipe, Feed):
        if registry is not None or recipe.lane != placement.lane:
            reason = (
                f"the feed reads lane {recipe.lane}, but this process is lane {placement.lane} of the mesh"
            )
            raise UsageError(
                "a feed has its registry already" if registry is not None else reason,
                hint="open the feed with lane=penstock.jax.lane_of(mesh, axis)",
            )
        placement.choose(fields, records=recipe.plan.records)
        return Loader(recipe, placement, prefetch=prefetch, options=replace(recipe.options, **reading))
    feed = open_feed(recipe, lane=placement.lane, registry=registry, **reading)
    try:
        placement.choose(fields, records=feed.plan.records)
        return Loader(feed, placement, prefetch=prefetch, options=feed.options)
    except BaseException:
        feed.close()
        raise


def all_devices(axis: str | Sequence[str]) -> Mesh:
    """A mesh of every device, along the first axis."""
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    shape = (jax.device_count(), *(1 for _ in names[1:]))
    return Mesh(np.array(jax.devices()).reshape(shape), names)
