"""Reinforcement learning: trajectories in three formats are the same records, whole or step by step."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.data import join
from penstock.registry.copies.export import export_version

COUNT, HORIZON = 24, 5


def trajectory(number: int) -> dict[str, Any]:
    """What an agent saw, did and got in one episode of five steps."""
    draws = np.random.default_rng(number)
    return {
        "obs": draws.normal(size=(HORIZON, 3)).astype(np.float32),
        "actions": draws.integers(0, 4, HORIZON),
        "reward": draws.normal(size=HORIZON).astype(np.float32),
    }


def as_arrays(row: dict[str, Any]) -> dict[str, Any]:
    """Lists of parquet as the arrays that they were."""
    return {
        "obs": np.array(row["obs"], dtype=np.float32),
        "actions": np.array(row["actions"], dtype=np.int64),
        "reward": np.array(row["reward"], dtype=np.float32),
    }


def discounted(row: dict[str, Any], draws: np.random.Generator) -> dict[str, Any]:
    """A random step of an episode, with what it brings from there on."""
    at = int(draws.integers(HORIZON))
    worth = float(np.sum(row["reward"][at:] * 0.9 ** np.arange(HORIZON - at)))
    return {"obs": row["obs"][at], "action": row["actions"][at], "worth": worth, "at": at}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ps.Registry:
    """The same episodes as npz, parquet and MDS."""
    folder = tmp_path_factory.mktemp("trajectories")
    rows = [trajectory(number) for number in range(COUNT)]
    np.savez(folder / "npz.npz", **{name: np.stack([row[name] for row in rows]) for name in rows[0]})
    lists = [{name: value.tolist() for name, value in row.items()} for row in rows]
    pq.write_table(pa.Table.from_pylist(lists), folder / "parquet.parquet")
    new_registry = ps.Registry(folder / "registry")
    for path in ("npz.npz", "parquet.parquet"):
        new_registry.register(Path(path).stem, folder / path)
    export_version(
        new_registry, new_registry.resolve("npz@1"), "mds", folder / "mds", name="mds", rows_per_shard=10
    )
    return new_registry


def digests(registry: ps.Registry, name: str, stages: Any, steps: int) -> list[str]:
    recipe = ps.Recipe(sources=[ps.Source(f"{name}@1", stages=stages)], batch=8, shuffle="none", seed=3)
    with ps.open(recipe, registry=registry, threads=2) as feed:
        return [next(feed).digest for _ in range(steps)]


def test_three_formats_give_the_same_records(registry: ps.Registry) -> None:
    expected = digests(registry, "npz", [], 3)
    assert digests(registry, "mds", [], 3) == expected
    assert digests(registry, "parquet", [ps.Map(as_arrays)], 3) == expected
    recipe = ps.Recipe(sources=[ps.Source("npz@1")], batch=8)
    batch = ps.batch_at(recipe, step=0, registry=registry)
    for row in range(8):
        written = trajectory(batch.origin(row)[0].sample)
        assert all(np.array_equal(batch[name][row], value) for name, value in written.items())


def test_random_steps_of_episodes_are_the_same_for_any_number_of_lanes(registry: ps.Registry) -> None:
    source = ps.Source("parquet@1", stages=[ps.Map(as_arrays), ps.Map(discounted, random=True)])
    recipe = ps.Recipe(sources=[source], batch=12, seed=3)
    whole = [ps.batch_at(recipe, step=step, registry=registry) for step in range(4)]
    for lanes in (2, 3):
        feeds = [ps.open(recipe, registry=registry, lane=ps.Lane(k, of=lanes)) for k in range(lanes)]
        for expected, *parts in zip(whole, *feeds, strict=False):
            assert join([part.digest for part in parts]) == expected.digest
            assert np.array_equal(np.concatenate([part["worth"] for part in parts]), expected["worth"])
        for feed in feeds:
            feed.close()
    assert len({int(at) for batch in whole for at in batch["at"]}) == HORIZON
