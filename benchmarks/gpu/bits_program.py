"""What `run_bits` trains: a small GPT with dropout on one device, in a run that saves often.

`bits_program.py RECIPE REGISTRY OUT STEPS DETERMINISTIC`. Needs nothing but torch, numpy and msgspec once the recipe is measured.
"""

import sys

import torch
from torch.nn import functional

import penstock as ps
import penstock.torch
from benchmarks.gpu.gpt import Gpt
from penstock.run import Policy

WIDTH, LAYERS, SAVE_EVERY, DIGEST_EVERY = 512, 8, 15, 60


class Dropping(Gpt):
    """With dropout, so that generators matter."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of predicting every next token."""
        self.seen += tokens.numel()
        hidden = functional.dropout(self.table(tokens[:, :-1]), 0.1, self.training)
        for block in self.blocks:
            hidden = block(hidden)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def main(recipe: str, registry: str, out: str, steps: str, deterministic: str) -> None:
    """Train to the end."""
    device = penstock.torch.join()
    run = ps.Run(
        out,
        recipe=ps.Recipe.load(recipe),
        registry=ps.Registry(registry),
        policy=Policy(
            save_every=SAVE_EVERY, stop_at=int(steps), digest_every=DIGEST_EVERY, keep=ps.Keep(last=2)
        ),
        seed=3,
        deterministic=deterministic == "yes",
    )
    with device:
        model = Dropping(WIDTH, LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _, batch in run.steps(penstock.torch.state(model, optimizer), device=device):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch["tokens"].long())
        loss.backward()
        optimizer.step()
        run.report(loss=loss.detach(), tokens=batch["tokens"].numel())


if __name__ == "__main__":
    main(*sys.argv[1:])
