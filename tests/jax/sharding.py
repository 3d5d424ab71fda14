"""What real JAX processes do in tests of states: one process with eight devices, and two with two each, over one place.

Run as ``python -m tests.jax.sharding JOB OUT [NUMBER ADDRESS]``. Each loads what was saved before it, over another mesh.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import penstock as ps
from penstock.jax import state


class Moments(NamedTuple):
    """A state as optax makes them."""

    count: jax.Array
    mu: dict[str, jax.Array]
    nu: dict[str, jax.Array]


SPECS = {
    "w": PartitionSpec("data", "model"),
    "b": PartitionSpec("model"),
    "t": PartitionSpec(("model", "data")),
}


def expected() -> dict[str, np.ndarray[Any, Any]]:
    rows = np.arange(96, dtype=np.float32).reshape(8, 12)
    return {"w": rows, "b": rows[0, :8].astype(jnp.bfloat16), "t": np.sin(rows[:, 0])}


def made(mesh: Mesh, scale: float) -> dict[str, Any]:
    """Parameters, moments, a key, a counter and a plain value, spread over a mesh."""

    def spread(name: str, array: Any) -> jax.Array:
        whole = (array * scale).astype(array.dtype)
        place = NamedSharding(mesh, SPECS[name])
        return jax.make_array_from_callback(whole.shape, place, lambda index: whole[index])

    params = {name: spread(name, array) for name, array in expected().items()}
    nu = {name: spread(name, array) for name, array in expected().items()}
    moments = Moments(jnp.asarray(3 * scale, jnp.int32), params, nu)
    everywhere = NamedSharding(mesh, PartitionSpec())
    key = jax.jit(lambda: jax.random.key(int(scale)), out_shardings=everywhere)()
    return {"params": params, "opt": (moments, {"lr": 0.1 * scale}), "key": key, "step": int(7 * scale)}


def check(tree: dict[str, Any], mesh: Mesh) -> None:
    for held in (tree["params"], tree["opt"][0].mu, tree["opt"][0].nu):
        for name, array in held.items():
            assert array.sharding == NamedSharding(mesh, SPECS[name])
            whole = expected()[name]
            for shard in array.addressable_shards:
                assert np.array_equal(np.asarray(shard.data), whole[shard.index]), name
    assert isinstance(tree["opt"][0], Moments)
    assert int(tree["opt"][0].count) == 3
    assert (tree["opt"][1], tree["step"]) == ({"lr": 0.1}, 7)
    fresh = jax.random.key_data(jax.random.key(1))
    for shard in jax.random.key_data(tree["key"]).addressable_shards:
        assert np.array_equal(np.asarray(shard.data), fresh)


def grid(rows: int, columns: int, turned: bool = False) -> Mesh:
    devices = np.array(sorted(jax.devices(), key=lambda device: (device.process_index, device.id)))
    places = devices[: rows * columns].reshape(rows, columns)
    return Mesh(places.T if turned else places, ("model", "data") if turned else ("data", "model"))


def resumed(checkpoints: ps.Checkpoints, mesh: Mesh) -> int:
    into = state(made(mesh, 0.0))
    checkpoint = checkpoints.resume(into=into)
    assert checkpoint is not None
    check(into.tree, mesh)
    # The new arrays are as good as any: a compiled function takes them, and gives their memory away.
    step = jax.jit(lambda tree: tree["params"]["w"] * 2, donate_argnums=0)
    saved = checkpoints.save(checkpoint.step + 1, state(into.tree))
    step({"params": into.tree["params"]})
    return int(saved.wait().step)


def devices(out: Path) -> None:
    """One process: saved over eight devices, loaded over four by two, two by four, and one."""
    with ps.Checkpoints(out / "checkpoints") as checkpoints:
        checkpoints.save(0, state(made(grid(8, 1), 1.0))).wait()
        for mesh in (grid(4, 2), grid(2, 4, turned=True), grid(1, 1)):
            resumed(checkpoints, mesh)


def pair(out: Path, number: int, address: str) -> None:
    """One of two processes, with meshes along which processes hold different parts, and the same."""
    jax.distributed.initialize(address, num_processes=2, process_id=number, initialization_timeout=60)
    with ps.Checkpoints(out / "checkpoints", rank=number, ranks=2, token="pair") as checkpoints:
        for mesh in (grid(2, 2), grid(2, 2, turned=True)):
            resumed(checkpoints, mesh)


if __name__ == "__main__":
    job, folder, *more = sys.argv[1:]
    if job == "devices":
        devices(Path(folder))
    else:
        pair(Path(folder), int(more[0]), more[1])
