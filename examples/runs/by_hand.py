"""The same without a run: a loop of your own over the pieces. This is all that an exact resume needs."""

from pathlib import Path

import torch
from corpus import LENGTH, WORDS, corpus
from gpt import GPT

import penstock as ps
import penstock.torch
from penstock.run.step.randomness import derive
from penstock.torch import determinism

SEED = 17


def train(place: str, steps: int) -> dict[int, str]:
    """Train to a step, or go on to it; the bits of the losses."""
    recipe, registry = corpus(Path("corpus"))
    determinism.pin(deterministic=True, threads=1)
    determinism.first_seed(derive(SEED, "init"))
    model = GPT(WORDS, LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    state = penstock.torch.state(model, optimizer)
    losses: dict[int, str] = {}
    with ps.Checkpoints(place, keep=ps.Keep(last=2)) as checkpoints:
        checkpoint = checkpoints.resume(state)  # from here on no earlier life can commit
        batches = penstock.torch.loader(recipe, registry=registry)
        if checkpoint is not None:
            batches.load_state_dict(checkpoints.entries(checkpoint)["data"])
        with batches:
            for batch in batches:
                # Generators follow from the step, not from what was drawn before it.
                determinism.seed(derive(SEED, "dropout", step=batch.step))
                optimizer.zero_grad()
                loss = model(batch["tokens"])
                loss.backward()
                optimizer.step()
                losses[batch.step] = loss.item().hex()
                done = batch.step + 1
                if done % 5 == 0 or done == steps:
                    checkpoints.save(done, state, entries={"data": batches.state_dict(after=batch.step)})
                if done == steps:
                    break
    return losses


def main() -> None:
    """In one piece, and in two."""
    whole = train("checkpoints/whole", 16)
    parts = train("checkpoints/parts", 10) | train("checkpoints/parts", 16)
    assert parts == whole
    print(f"{len(whole)} losses are bit-equal, in one piece and in two")


if __name__ == "__main__":
    main()
