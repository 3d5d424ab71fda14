"""A Trainer with something planted in it: ``python -m tests.torch.observed_trainer OUT``. Trains twice, once without the callback, and compares bits."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

import penstock.torch
from penstock.state.ranks.clock import Clock

STEPS, EVERY, SLEEP_S = 20, 5, 0.25
#: Evaluations and saves: their steps, and what each evaluation takes at least.
EVAL_EVERY, SAVE_EVERY, EVAL_S = 8, 10, 0.05
ROWS, LENGTH, ACCUMULATED = 4, 9, 2
pause = Clock().pause


class Sleepy(transformers.TrainerCallback):  # type: ignore[misc]
    """Somebody else's callback, which takes long at every fifth step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if state.global_step % EVERY == 0:
            pause(SLEEP_S)


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def __len__(self) -> int:
        return 4096 if not self.pause_s else 4

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        pause(self.pause_s)
        row = torch.arange(LENGTH) * (number + 3) % 50
        return {"input_ids": row, "labels": row}


def trained(into: Path | None) -> list[bytes]:
    transformers.set_seed(3)
    shape = {"vocab_size": 50, "n_positions": LENGTH, "n_embd": 8, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
    )
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            max_steps=STEPS,
            per_device_train_batch_size=ROWS,
            gradient_accumulation_steps=ACCUMULATED,
            logging_steps=4,
            eval_strategy="steps",
            eval_steps=EVAL_EVERY,
            save_strategy="steps",
            save_steps=SAVE_EVERY,
        )
        callbacks = [Sleepy(), *([] if into is None else [penstock.torch.trainer_callback(into=into)])]
        transformers.Trainer(
            model,
            arguments,
            train_dataset=Rows(0.0),
            eval_dataset=Rows(EVAL_S / 4),
            callbacks=callbacks,
        ).train()
    return [tensor.detach().numpy().tobytes() for tensor in model.parameters()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    before = torch.utils.data.dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward
    assert trained(Path(sys.argv[1])) == trained(None), "recording changed the parameters"
    assert (torch.utils.data.dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward) == before
