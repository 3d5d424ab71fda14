"""What a run costs per step, against a bare loop over the same loader: generators, exchange, records, events, policy.

The step itself does nothing, so the difference is the run's own. A step of 100 ms is what the claim is about. Processor time of the
loop's thread is measured, because nothing that a run does in every step waits, and other programs do not count.
"""

import itertools
import json
import tempfile
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import penstock as ps
import penstock.torch
from benchmarks.table import Table
from penstock.run import Policy, Spike

STEPS = 400
ROUNDS = 5
_STEP_US = 100_000


def run() -> Table:
    """Measure in one run; contenders take turns."""
    table = Table("a run adds at most 1 % to a step of 100 ms, its records and spans 0.1 %", "µs per step")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        recipe, registry = _recipe(place)
        contenders = {
            "bare loop over the loader": lambda at: _bare(recipe, registry),
            "run, nothing reported": lambda at: _run(recipe, registry, place / f"a{at}", "none"),
            "run, report(loss, grad_norm, tokens)": lambda at: _run(
                recipe, registry, place / f"b{at}", "report"
            ),
            "run, accept(loss, grad_norm, tokens)": lambda at: _run(
                recipe, registry, place / f"c{at}", "accept"
            ),
            "run, accept and three spans": lambda at: _run(recipe, registry, place / f"d{at}", "spans"),
        }
        best = dict.fromkeys(contenders, float("inf"))
        for at in range(ROUNDS):
            for name, work in contenders.items():
                best[name] = min(best[name], work(at))
    bare = next(iter(best.values()))
    for name, value in best.items():
        table.add(name, value, "" if value == bare else f"adds {(value - bare) / _STEP_US:.3%} of 100 ms")
    return table


def _bare(recipe: ps.Recipe, registry: ps.Registry) -> float:
    with penstock.torch.loader(recipe, registry=registry) as batches:
        steps = iter(batches)
        next(steps)
        began = time.thread_time()
        for batch in itertools.islice(steps, STEPS):
            float(batch["tokens"][0, 0])
        return (time.thread_time() - began) / STEPS * 1e6


def _run(recipe: ps.Recipe, registry: ps.Registry, place: Path, how: str) -> float:
    policy = Policy(save_every=None, stop_at=STEPS + 1, spike=Spike(k=1e9))
    training = ps.Run(place, recipe=recipe, registry=registry, policy=policy, seed=1)
    model = torch.nn.Linear(4, 4)
    began = 0.0
    for step, batch in training.steps(penstock.torch.state(model, torch.optim.SGD(model.parameters()))):
        if step == 1:
            began = time.thread_time()
        loss = float(batch["tokens"][0, 0])
        if how == "spans":
            for name in ("forward", "backward", "optimizer"):
                with training.span(name):
                    pass
        if how in ("accept", "spans"):
            training.accept(loss, 1.0, tokens=batch["tokens"].numel())
        elif how == "report":
            training.report(loss=loss, grad_norm=1.0, tokens=batch["tokens"].numel())
        if step == STEPS:
            return (time.thread_time() - began) / (STEPS - 1) * 1e6
    raise AssertionError("the stream ended early")


def _recipe(place: Path) -> tuple[ps.Recipe, ps.Registry]:
    rows = [json.dumps({"text": " ".join(str(n * k % 97) for k in range(200))}) for n in range(2000)]
    (place / "rows.jsonl").write_text("\n".join(rows) + "\n")
    words = Tokenizer(models.WordLevel({str(n): n for n in range(98)}, unk_token="97"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(place / "tokenizer.json"))
    registry = ps.Registry(place / "registry")
    registry.register("rows", place / "rows.jsonl")
    stages = (ps.Tokenize(str(place / "tokenizer.json")), ps.Pack(128))
    return ps.Recipe(sources=(ps.Source("rows@1"),), batch=8, stages=stages), registry
