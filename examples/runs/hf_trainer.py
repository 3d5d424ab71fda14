"""Hugging Face's Trainer with exact checkpoints: a callback saves and resumes, and batches come from the step where training stands."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from corpus import LENGTH, WORDS, corpus

import penstock as ps
import penstock.torch
from penstock.run.step.randomness import derive
from penstock.torch import determinism

SEED, BATCH, STEPS = 17, 8, 12


class Rows(torch.utils.data.IterableDataset):
    """Rows of a recipe for Trainer, from the batch where `batches` stands."""

    def __init__(self, batches: penstock.torch.Loader) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in self.batches:
            for row in batch["tokens"]:
                yield {"input_ids": row, "labels": row}


class Exact(transformers.TrainerCallback):
    """Saves every few steps and at the end; a Trainer that begins with it goes on from the newest checkpoint."""

    def __init__(self, place: str, batches: penstock.torch.Loader, *, every: int) -> None:
        self.checkpoints = ps.Checkpoints(place, keep=ps.Keep(last=2))
        self.batches, self.every = batches, every

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Fill model, optimizer and schedule, and go to the step and its batch."""
        # Accelerate wraps the optimizer; the one inside has the moments.
        optimizer = getattr(parts["optimizer"], "optimizer", parts["optimizer"])
        self.tree = penstock.torch.state(parts["model"], optimizer, scheduler=parts["lr_scheduler"])
        checkpoint = self.checkpoints.resume(self.tree)
        if checkpoint is not None:
            self.batches.load_state_dict(self.checkpoints.entries(checkpoint)["data"])
            state.global_step = checkpoint.step
            if checkpoint.step >= state.max_steps:
                self.checkpoints.close()
                raise SystemExit(0)  # finished; Trainer would train one step more

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Generators follow from the step: what a DataLoader draws at its start does not count."""
        determinism.seed(derive(SEED, "dropout", step=state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Save after the step. Trainer fetches ahead, so the position is that of the step and not of the loader."""
        if state.global_step % self.every == 0 or control.should_training_stop:
            position = self.batches.state_dict(after=state.global_step * args.gradient_accumulation_steps - 1)
            self.checkpoints.save(state.global_step, self.tree, entries={"data": position})

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self.checkpoints.close()  # waits until all is committed


class StopAt(transformers.TrainerCallback):
    """Ends training early, as a person or a scheduler would. It goes before `Exact`, which saves where training stops."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        control.should_training_stop = control.should_training_stop or state.global_step >= self.step


def train(place: str, stop_at: int = STEPS) -> dict[str, torch.Tensor]:
    """Train to a step, or go on to it; the parameters."""
    recipe, registry = corpus(Path("corpus"), batch=BATCH)
    determinism.pin(deterministic=True, threads=1)
    shape = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    transformers.set_seed(SEED)
    config = transformers.GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as output, penstock.torch.loader(recipe, registry=registry) as batches:
        options = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
        sizes = {"per_device_train_batch_size": BATCH, "gradient_accumulation_steps": 2, "max_steps": STEPS}
        arguments = transformers.TrainingArguments(output, lr_scheduler_type="cosine", **options, **sizes)
        callbacks = [StopAt(stop_at), Exact(place, batches, every=4)]
        transformers.Trainer(model, arguments, train_dataset=Rows(batches), callbacks=callbacks).train()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


if __name__ == "__main__":
    whole = train("checkpoints/trainer")
    train("checkpoints/trainer-stopped", stop_at=5)
    resumed = train("checkpoints/trainer-stopped")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())
    print(f"{len(whole)} tensors are bit-equal, trained in one piece and stopped after step 5")
    train("checkpoints/trainer-stopped")  # ends the program: nothing is left to do
    raise AssertionError("a finished training went on")
