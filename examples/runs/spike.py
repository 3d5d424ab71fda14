"""A batch that makes the loss jump is skipped, on the spot, and stays skipped in every later life."""

from pathlib import Path

import torch
from corpus import LENGTH, WORDS, corpus
from gpt import GPT

import penstock as ps
import penstock.torch
from penstock.run.journal import journal

STEPS = 50
BAD = 40


def train(stop: int) -> int:
    """Up to a step; how often the optimizer stepped."""
    recipe, registry = corpus(Path("corpus"))
    policy = ps.RunPolicy(save_every=20, stop_at=stop, spike=ps.Spike(k=8, window=24, least=12, then="skip"))
    run = ps.Run("runs/spike", recipe=recipe, registry=registry, policy=policy, seed=17)
    model = GPT(WORDS, LENGTH, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    taken = 0
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):
        tokens = batch["tokens"]
        if step == BAD:  # stands for a damaged shard: tokens without any sense
            tokens = torch.randint(WORDS, tokens.shape)
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if run.accept(loss, norm):  # before the optimizer: nothing has to be undone
            optimizer.step()
            taken += 1
    return taken


def main() -> None:
    """Train past the bad batch, then once more over it."""
    torch.set_num_threads(1)
    assert train(STEPS) == STEPS - 1
    (decision,) = (entry for entry in journal.read("runs/spike") if entry.kind == "verdict")
    print(f"step {decision.step}: {decision.facts['action']}, because {decision.facts['reason']}")
    assert (decision.step, decision.facts["action"]) == (BAD, "skip")


if __name__ == "__main__":
    main()
