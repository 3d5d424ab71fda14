"""Coming from StatefulDataLoader: the same array, the same rows, and a state that outlives the number of workers and ranks."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import penstock as ps
import penstock.torch


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """What people write by hand: rows of a memmap."""

    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[at].astype(np.int64))


def main(folder: Path) -> None:
    """Read one epoch with both, then stop one rank in the middle and go on with two."""
    path = folder / "tokens.npy"
    np.save(path, np.random.default_rng(1).integers(0, 50_000, (512, 64), dtype=np.uint16))
    before = torch.cat(list(StatefulDataLoader(Rows(path), batch_size=16, shuffle=True)))

    registry = ps.Registry(folder / "registry")
    registry.register("tokens", path)  # the file stays where and as it is
    recipe = ps.Recipe(sources=[ps.Source("tokens@1", epochs=1)], seed=17, batch=16)
    with penstock.torch.loader(recipe, registry=registry) as batches:
        assert len(batches) == 32
        after = torch.cat([batch["tokens"] for batch in batches])
    assert torch.equal(torch.unique(before, dim=0), torch.unique(after, dim=0))  # the same rows, bit for bit
    assert not torch.equal(before, after)  # in another order: each has its own shuffle

    with penstock.torch.loader(recipe, registry=registry, threads=0) as batches:
        for batch in itertools.islice(batches, 5):
            inputs, labels = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
        state = batches.state_dict()
        expected = [batch["tokens"] for batch in batches]
    lanes = [penstock.torch.loader(recipe, registry=registry, lane=ps.Lane(k, of=2)) for k in range(2)]
    for lane in lanes:
        lane.load_state_dict(state)  # taken by one rank, taken up by two
    resumed = [torch.cat([batch["tokens"] for batch in step]) for step in zip(*lanes, strict=True)]
    assert torch.equal(torch.cat(expected), torch.cat(resumed))
    assert inputs.shape == labels.shape == (16, 63)
    print(f"{len(after)} rows are the same; {len(resumed)} batches after the resume are the same")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
