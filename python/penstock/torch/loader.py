"""The loader: a recipe as a PyTorch training loop wants it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

import torch

from penstock.data import Feed, Lane, Recipe
from penstock.data import open as open_feed
from penstock.data.feed.options import ReadKeywords, ReadOptions
from penstock.data.feed.prefetch import Prefetch
from penstock.errors import UsageError
from penstock.registry import Registry
from penstock.torch.batch import Batch
from penstock.torch.lane import current_lane
from penstock.torch.transfer import Fields, Transfer, arrived


class Loader(Prefetch[Batch]):
    """Batches of tensors for one lane. A loop over it continues where the last one stopped.

    It has ``state_dict`` and ``load_state_dict``, so it can stand in a dict for ``torch.distributed.checkpoint`` as it is.
    """

    def __init__(self, feed: Feed, transfer: Transfer, *, prefetch: int, options: ReadOptions) -> None:
        super().__init__(feed, transfer, prefetch=prefetch, options=options)
        self.device = transfer.device

    def __iter__(self) -> Iterator[Batch]:
        return map(arrived, super().__iter__())


def loader(
    recipe: Recipe | Feed,
    *,
    lane: Lane | None = None,
    registry: Registry | None = None,
    device: torch.device | str | int | None = None,
    fields: Fields | None = None,
    prefetch: int = 2,
    **reading: Unpack[ReadKeywords],
) -> Loader:
    """Open a recipe for a PyTorch loop, or take over a feed that was opened with more than a recipe (skips, say).

    ``lane``: of this process; by default its rank in the process group (see ``lane_of`` for meshes). ``device``: where tensors
    are wanted; on CUDA they travel through pinned memory beside the loop. ``fields``: names, or names with types, such as
    ``{"tokens": torch.int32, "loss_mask": torch.float32}``; None for the type as stored. By default ``tokens`` and ``cu_seqlens``, and of
    records all: arrays as tensors, the rest as the lists that they are. ``prefetch``: batches on the device
    before they are asked for. ``threads``: of the feed, which read further ahead in host memory. ``share``: with processes of this host that read
    the same lane (see ``penstock.open``). ``stall_s``: how long a wait may last before it is told.
    """
    if isinstance(recipe, Feed):
        if lane is not None or registry is not None:
            raise UsageError("a feed has its lane and registry already", hint="give them to penstock.open")
        transfer = Transfer(device, fields, records=recipe.plan.records)
        return Loader(recipe, transfer, prefetch=prefetch, options=replace(recipe.options, **reading))
    chosen = current_lane() if lane is None else lane
    feed = open_feed(recipe, lane=chosen, registry=registry, **reading)
    try:
        transfer = Transfer(device, fields, records=feed.plan.records)
        return Loader(feed, transfer, prefetch=prefetch, options=feed.options)
    except BaseException:
        feed.close()
        raise
