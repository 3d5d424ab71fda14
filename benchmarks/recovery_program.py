"""What ranks of `bench_recovery` do: the same small model, in a run, and as people write it for torchrun with DCP and a StatefulDataLoader.

Every rank writes a line per finished step, ``life step time``, to a file of its own.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

WIDTH, VOCABULARY, LENGTH, ROWS, SAVE_EVERY, STEPS = 128, 1002, 128, 16, 10, 10**6


class Model(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.inner = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.outer = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of the next token."""
        out = self.outer(self.inner(self.words(tokens[:, :-1])))
        return nn.functional.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())


class Marks:
    """Tells that steps are over."""

    def __init__(self, folder: Path, life: int) -> None:
        self._file = (folder / f"{os.environ['RANK']}.txt").open("a", buffering=1)
        self._life = life

    def tell(self, step: int) -> None:
        """A step is over."""
        self._file.write(f"{self._life} {step} {time.time()}\n")


def ours(folder: Path) -> None:
    """In a run."""
    import penstock as ps
    import penstock.torch
    from penstock.run import Policy

    penstock.torch.join("gloo")
    run = ps.Run(
        folder / "run",
        recipe=ps.Recipe.load(folder / "recipe.json"),
        registry=ps.Registry(folder / "registry"),
        policy=Policy(save_every=SAVE_EVERY, stop_at=STEPS),
        deterministic=True,
    )
    model = penstock.torch.ddp(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    marks = Marks(folder / "marks", int(os.environ["PENSTOCK_INCARNATION"]))
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):
        optimizer.zero_grad()
        loss = model(batch["tokens"].long())
        loss.backward()
        if run.accept(loss.detach()):
            optimizer.step()
        marks.tell(step)


def theirs(folder: Path) -> None:
    """As people write it."""
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.utils.data import DistributedSampler
    from torchdata.stateful_dataloader import StatefulDataLoader

    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.load(folder / "tokens.pt")
    sampler: Any = DistributedSampler(rows)
    loader = StatefulDataLoader(rows, batch_size=ROWS // distributed.get_world_size(), sampler=sampler)
    first, saved = 0, sorted(folder.glob("dcp-*/.metadata"), key=lambda path: int(path.parent.name[4:]))
    if saved:
        saved_states: dict[str, Any] = dict(
            zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)
        )
        first = int(saved[-1].parent.name[4:])
        dcp.load(saved_states, checkpoint_id=str(saved[-1].parent))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=saved_states["model"],
            optim_state_dict=saved_states["optimizer"],
        )
        loader.load_state_dict(torch.load(folder / f"loader-{first}-{os.environ['RANK']}.pt"))
    marks = Marks(folder / "marks", int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    step = first
    while step < STEPS:
        for batch in loader:
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
            marks.tell(step)
            step += 1
            if step % SAVE_EVERY == 0:
                torch.save(loader.state_dict(), folder / f"loader-{step}-{os.environ['RANK']}.pt")
                states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
                dcp.save(states, checkpoint_id=str(folder / f"dcp-{step}"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"ours": ours, "theirs": theirs}[sys.argv[1]](Path(sys.argv[2]))
