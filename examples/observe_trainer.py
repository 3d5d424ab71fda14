"""Why is my Trainer slow? A callback records where its time goes, and `penstock report` names the line."""

import subprocess
import time

import torch
import transformers

import penstock.torch

torch.set_num_threads(1)
config = {"vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config, bos_token_id=None, eos_token_id=None))
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (96, 16))]


class Dashboard(transformers.TrainerCallback):
    """Something that everybody has, and that takes longer than anybody knows."""

    def on_step_end(self, args, state, control, **parts):
        if state.global_step % 4 == 0:
            time.sleep(0.5)


arguments = transformers.TrainingArguments(
    "output", use_cpu=True, report_to="none", disable_tqdm=True, max_steps=24, per_device_train_batch_size=4
)
callbacks = [Dashboard(), penstock.torch.trainer_callback(into="runs/trainer")]
transformers.Trainer(model, arguments, train_dataset=rows, callbacks=callbacks).train()

report = subprocess.run(["penstock", "report", "runs/trainer"], capture_output=True, text=True, check=True)
print(report.stdout.splitlines()[0])
assert "`time.sleep(0.5)`" in report.stdout.splitlines()[0]
