"""Coming from Megatron: .bin and .idx are read as they are, blended by weight, without index maps built beforehand."""

import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

import penstock as ps
import penstock.torch


def write_corpus(prefix: Path, documents: int, seed: int) -> None:
    """Tokenised documents, written by Megatron itself."""
    draw = np.random.default_rng(seed)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for _ in range(documents):
        builder.add_item(torch.from_numpy(draw.integers(0, 50_000, draw.integers(5, 300))))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


def main(folder: Path) -> None:
    """Read the same files with both, then blend them, stop at a sample and go on with more ranks."""
    registry = ps.Registry(folder / "registry")
    for seed, name in enumerate(("web", "code")):
        write_corpus(folder / name, 400, seed)
        before = IndexedDataset(str(folder / name))
        version = registry.register(name, folder / f"{name}.bin")  # the .idx is found beside it
        assert version.rows == len(before) == 400
        for n, row in enumerate(version.take(range(400))):
            np.testing.assert_array_equal(before[n], row["tokens"], strict=True)  # values and type

    recipe = ps.Recipe(  # --data-path 0.7 web 0.3 code
        sources=[ps.Source("web@1", weight=0.7), ps.Source("code@1", weight=0.3)],
        seed=1234,  # --seed
        batch=16,  # --global-batch-size
        stages=[ps.Pack(128, separator=50_256)],  # --seq-length; what --append-eod was not asked for
    )
    with penstock.torch.loader(recipe, registry=registry) as batches:
        for batch in itertools.islice(batches, 10):
            assert batch["tokens"].shape == (16, 128)
            assert (batch["tokens"] == 50_256).any()
            assert int(batch["cu_seqlens"][-1]) == 16 * 128  # document borders: --reset-attention-mask
        state = batches.state_dict()
        expected = next(iter(batches))["tokens"]
    assert json.loads(state["cursor"])["position"] == 160  # consumed samples
    lanes = [penstock.torch.loader(recipe, registry=registry, lane=ps.Lane(k, of=8)) for k in range(8)]
    for lane in lanes:
        lane.load_state_dict(state)
    assert torch.equal(torch.cat([next(iter(lane))["tokens"] for lane in lanes]), expected)
    print("800 documents are the same; sample 160 and on are the same on eight lanes")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
