"""Pytrees move between meshes and processes, bit for bit, and come back in the containers they were in."""

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import penstock as ps
from penstock import errors
from penstock.jax import state
from penstock.jax.tensors import held_of

TIMEOUT_S = 120


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """A container that is no dict."""

    weight: jax.Array
    bias: jax.Array | None


class Twice:
    """A container that calls both of its children the same."""


jax.tree_util.register_pytree_with_keys(
    Twice,
    lambda _: ([(jax.tree_util.DictKey("a"), 1), (jax.tree_util.DictKey("a"), 2)], None),
    lambda *_: Twice(),
)


def start(root: Path, device_count: int, *arguments: str) -> "subprocess.Popen[str]":
    flags = f"--xla_force_host_platform_device_count={device_count}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.jax.sharding", *arguments],
        cwd=root,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*processes: "subprocess.Popen[str]") -> None:
    try:
        said = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)


def test_any_mesh_loads_what_any_other_saved(tmp_path: Path, root: Path) -> None:
    """Goal: S4 for JAX. Method: eight devices, then four by two, two by four, one; then two real processes, whose devices hold
    different parts and then the same; each compares every shard with the whole, and saves what it loaded while donating it."""
    finish(start(root, 8, "devices", str(tmp_path)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    finish(*(start(root, 2, "pair", str(tmp_path), str(number), address) for number in range(2)))
    checkpoints = ps.Checkpoints(tmp_path / "checkpoints", read_only=True).list()
    assert [checkpoint.step for checkpoint in checkpoints] == list(range(6))
    tensors = checkpoints[0].manifest.tensors
    assert {"params/w", "opt/0/mu/b", "opt/0/count", "key/key"} <= tensors.keys()
    assert len(tensors["params/w"].pieces) == 8
    assert tensors["params/b"].dtype == "BF16"
    assert checkpoints[0].manifest.values["key/impl"] == "threefry2x32"


def test_containers_and_descriptions_come_back_as_arrays(tmp_path: Path) -> None:
    """Method: load into a tree that was only described, and into one whose leaves are numbers and numpy arrays."""
    tree = {
        "layer": Layer(jnp.arange(6.0).reshape(2, 3), None),
        "list": [jnp.asarray(2), (jnp.zeros((0, 3)),)],
        "numpy": np.arange(3),
        "plain": "text",
        "soft": jnp.asarray(1.5),
    }
    described = {**tree, "layer": Layer(jax.ShapeDtypeStruct((2, 3), jnp.float32), None)}
    described["numpy"] = np.zeros(3, np.int64)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, state(tree)).wait()
        into = state(described)
        checkpoints.load(checkpoint, into=into)
        with pytest.raises(errors.TreeInvalid, match="only described"):
            checkpoints.save(2, state(described))
    assert isinstance(into.tree["layer"], Layer)
    assert isinstance(into.tree["list"][1], tuple)
    assert jax.tree.all(jax.tree.map(np.array_equal, into.tree, tree))
    assert into.tree["soft"].weak_type
    assert (into.tree["soft"] * jnp.ones(1, jnp.bfloat16)).dtype == jnp.bfloat16


def test_dicts_of_arrays_of_both_frameworks_are_trees(tmp_path: Path) -> None:
    """Goal: one checkpoint for both. Method: save arrays of JAX, load them into tensors of PyTorch, and the other way round."""
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, {"a": jnp.arange(5, dtype=jnp.bfloat16), "n": jnp.asarray(3)}).wait()
        tensors = {"a": torch.zeros(5, dtype=torch.bfloat16), "n": torch.zeros((), dtype=torch.int32)}
        checkpoints.load(checkpoint, into=tensors)
        assert tensors["a"].tolist() == [0, 1, 2, 3, 4]
        checkpoint = checkpoints.save(2, tensors).wait()
        arrays = checkpoints.load(checkpoint, into={"a": jnp.ones(5, jnp.bfloat16), "n": jnp.asarray(0)})
    assert arrays["a"].tolist() == [0, 1, 2, 3, 4]
    assert int(arrays["n"]) == 3


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(errors.TreeInvalid, match="'x' in the tree: arrays of int4"):
        held_of("x", jnp.zeros(2, jnp.int4), 0, 1)
    with pytest.raises(errors.TreeInvalid, match="got a bare leaf"):
        state(jnp.zeros(2))
    with pytest.raises(errors.TreeInvalid, match="two leaves have this name"):
        state(Twice())
    saved = state({"key": jax.random.key(0)}).values()
    with pytest.raises(errors.TreeInvalid, match=r"a key of .* was saved, but this one is of"):
        state({"key": jax.random.key(0, impl="rbg")}).load_values(saved)
