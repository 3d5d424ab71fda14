"""A module as Lightning has it (training_step, validation_step, configure_optimizers), and a short fit() for it over a run."""

from collections.abc import Callable
from pathlib import Path

import torch
from corpus import LENGTH, WORDS, corpus
from gpt import GPT

import penstock as ps
import penstock.torch
from penstock.run.journal import step_records as records

STEPS = 8


class Language(torch.nn.Module):
    """What a LightningModule says about training. It knows no run."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT(WORDS, LENGTH)

    def training_step(self, batch: penstock.torch.Batch, batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        return self.gpt(batch["tokens"])

    def validation_step(self, batch: penstock.torch.Batch, batch_idx: int) -> dict[str, torch.Tensor]:
        """What to log of a batch; the mean over all of them is logged."""
        return {"val_loss": self.gpt(batch["tokens"])}

    def configure_optimizers(
        self,
    ) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        """One optimizer and its schedule, which steps once a step."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def fit(
    make: Callable[[], Language], directory: str, *, max_steps: int, val_every: int, clip: float = 1.0
) -> None:
    """Train a module to a step, or go on to it. The module is made here, after the run, so that its weights follow from the seed."""
    recipe, registry = corpus(Path("corpus"), batch=8)
    policy = ps.RunPolicy(
        save_every=val_every,
        stop_at=max_steps,
        keep=ps.Keep(last=1, best=ps.Best("val_loss")),
        digest_every=1,
    )
    run = ps.Run(directory, recipe=recipe, registry=registry, policy=policy, seed=17, deterministic=True)
    module = make()
    optimizer, scheduler = module.configure_optimizers()
    for step, batch in run.steps(penstock.torch.state(module, optimizer, scheduler=scheduler)):
        optimizer.zero_grad()
        loss = module.training_step(batch, step)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        if run.accept(loss, norm):
            optimizer.step()
        scheduler.step()
        if (step + 1) % val_every == 0:  # as often as the run saves: what is logged goes with that checkpoint
            with run.phase("validate"), torch.no_grad():
                module.eval()
                run.log(**validate(module, recipe, registry))
                module.train()


def validate(module: Language, recipe: ps.Recipe, registry: ps.Registry) -> dict[str, torch.Tensor]:
    """Means over two batches from far away in the stream; a recipe of held-out data would stand here."""
    far = (1_000_000, 1_000_001)
    batches = [ps.batch_at(recipe, step=step, registry=registry) for step in far]
    tensors = [{"tokens": torch.tensor(batch["tokens"], dtype=torch.long)} for batch in batches]
    results = [module.validation_step(batch, number) for number, batch in enumerate(tensors)]
    return {name: torch.stack([result[name] for result in results]).mean() for name in results[0]}


if __name__ == "__main__":
    fit(Language, "runs/fit", max_steps=STEPS, val_every=3)
    fit(Language, "runs/fit-twice", max_steps=5, val_every=3)
    fit(Language, "runs/fit-twice", max_steps=STEPS, val_every=3)
    whole, parts = records.read("runs/fit"), records.read("runs/fit-twice")
    for step in range(STEPS):
        assert whole[step].ranks[0].loss_bits == parts[step].ranks[0].loss_bits
        assert whole[step].ranks[0].parameters == parts[step].ranks[0].parameters
    kept = [checkpoint.step for checkpoint in ps.Checkpoints("runs/fit-twice/checkpoints").list()]
    print(f"{STEPS} steps are bit-equal, in one piece and in two; checkpoints {kept} are kept")
