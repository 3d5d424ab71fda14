"""What real JAX processes do in tests: eight devices in one process, and two processes with two devices each.

Run as ``python -m tests.jax.processes JOB STREAM OUT [NUMBER ADDRESS]``; what was seen is written as JSON below OUT.
"""

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from penstock import errors
from penstock.jax import Batch, Loader, lane_of, loader
from penstock.jax.gang import agree, share
from tests.torch.stream import Stream


def taken(batches: Loader, count: int) -> list[Batch]:
    return list(itertools.islice(batches, count))


def described(batches: Loader, count: int) -> dict[str, Any]:
    """The lane, what was read, and where its rows lie: device, first row, rows."""
    delivered = taken(batches, count)
    return {
        "lane": [batches.lane.number, batches.lane.of],
        "digests": [batch.digest for batch in delivered],
        "shapes": [list(batch["tokens"].shape) for batch in delivered],
        "pieces": [
            [
                [piece.index[0].start or 0, np.asarray(piece.data).tolist()]
                for piece in batch["tokens"].addressable_shards
            ]
            for batch in delivered
        ],
    }


def devices(stream: Stream, out: Path) -> None:
    """One process: a mesh of eight, and one of four by two whose second axis holds whole rows."""
    assert jax.device_count() == 8
    grid = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    with loader(stream.recipe(), registry=stream.registry) as flat:
        seen = {"flat": described(flat, 8)}
        state = flat.state_dict()
        total = jax.jit(lambda batch: batch["tokens"].sum())(taken(flat, 1)[0])
        seen["total"] = int(total)
    with loader(stream.recipe(), mesh=grid, registry=stream.registry, fields={"tokens": None}) as deep:
        seen["grid"] = described(deep, 8)
        deep.load_state_dict(state)
        seen["resumed"] = taken(deep, 1)[0].digest
    with loader(stream.recipe(), mesh=grid, axis=("data", "model"), registry=stream.registry) as both:
        seen["both"] = described(both, 1)
    try:
        loader(stream.finite(), mesh=Mesh(np.array(jax.devices()[:5]), ("data",)), registry=stream.registry)
    except errors.RecipeInvalid as problem:
        seen["refused"] = str(problem)
    (out / "devices.json").write_text(json.dumps(seen))


def pair(stream: Stream, out: Path, number: int, address: str) -> None:
    """One of two processes: rows spread over the processes, then rows shared by them."""
    jax.distributed.initialize(address, num_processes=2, process_id=number, initialization_timeout=60)
    assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (2, 4, 2)
    grid = np.array(sorted(jax.devices(), key=lambda device: (device.process_index, device.id))).reshape(2, 2)
    seen = {}
    for name, places in {"spread": grid, "shared": grid.T}.items():
        mesh = Mesh(places, ("data", "model"))
        with loader(stream.recipe(), mesh=mesh, registry=stream.registry, threads=1) as batches:
            seen[name] = described(batches, 8)
    woven = Mesh(grid.T.reshape(4), ("data",))
    try:
        lane_of(woven)
    except errors.UsageError as problem:
        seen["woven"] = str(problem)
    seen["heard"] = [repr(agree([number, math.nan, 1e300])), share(f"of {number}".encode()).decode()]
    (out / f"process-{number}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    job, stream_folder, out_folder, *more = sys.argv[1:]
    if job == "devices":
        devices(Stream(Path(stream_folder)), Path(out_folder))
    else:
        pair(Stream(Path(stream_folder)), Path(out_folder), int(more[0]), more[1])
