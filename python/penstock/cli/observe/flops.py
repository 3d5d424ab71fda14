"""``penstock flops``: what a step of a model costs, before anything runs."""

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_table, print_text, say
from penstock.errors import UsageError

if TYPE_CHECKING:
    import torch

app = command_app(
    "flops",
    "Count what a step of a model computes, by module, on fake tensors: no GPU, no weights.",
    examples=(
        "  penstock flops config.json --rows 8 --length 4096\n"
        "  penstock flops train:build_model --length 2048 --dtype bfloat16 --json"
    ),
)


@app.default
def flops(
    model: str,
    *,
    rows: Annotated[int, Parameter(help="Rows of a batch.")] = 1,
    length: Annotated[int, Parameter(help="Tokens of a row.")] = 2048,
    dtype: Annotated[
        str | None, Parameter(help="Type of numbers, as in bfloat16; default: the model's own.")
    ] = None,
    forward_only: Annotated[bool, Parameter(negative=(), help="Count no gradients.")] = False,
    json: Json = False,
) -> int:
    """Trace forward and backward and print what multiplies; exit 1 when something is unknown.

    Parameters
    ----------
    model
        A config.json of Hugging Face, or MODULE:FACTORY, a function that gives a model, or a model and a batch.
    """
    if rows < 1 or length < 1:
        raise UsageError(f"rows and length must be at least 1, got {rows} and {length}")
    try:
        import torch
    except ImportError as reason:
        raise UsageError("counting FLOPs needs torch", hint="pip install torch") from reason
    # Nothing is loaded from the Hub: a configuration is enough.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from penstock.torch import flops as count

    number_type = _number_type(torch, dtype)
    if model.endswith(".json"):
        from penstock.torch.arithmetic.hugging_face import batch_of, model_of

        module, config = model_of(Path(model), dtype=number_type)
        batch: Any = batch_of(module, config, rows=rows, length=length)
    else:
        module, batch = _made_by_factory(torch, model, rows, length, number_type)
    return _show(count(module, batch, backward=not forward_only), json=json)


def _number_type(torch: Any, name: str | None) -> "torch.dtype | None":
    dtype = None if name is None else getattr(torch, name, None)
    if name is not None and not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"unknown type {name!r}", hint="types are called as in torch: bfloat16, float32, float16"
        )
    return dtype


def _made_by_factory(
    torch: Any, name: str, rows: int, length: int, dtype: "torch.dtype | None"
) -> "tuple[torch.nn.Module, Any]":
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise UsageError(
            f"expected MODULE:FACTORY or a config.json, got {name!r}", hint="penstock flops train:build_model"
        )
    sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError) as reason:
        raise UsageError(f"{name} cannot be imported: {reason}") from reason
    with torch.device("meta"):
        made = factory()
    module, batch = made if isinstance(made, tuple) else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{name} must give a torch.nn.Module, got {type(module).__name__}")
    if batch is None:
        batch = torch.empty(rows, length, dtype=torch.long, device="meta")
    return (module if dtype is None else module.to(dtype)), batch


def _show(result: Any, *, json: bool) -> int:
    from penstock.observe.flops import BatchLayout
    from penstock.observe.flops.summary import notes_of, rows_of

    step = result.count(BatchLayout(result.first.shape))
    table = rows_of(result)
    notes = list(notes_of(result))
    if json:
        document = {"shape": str(result.first.shape), **step.to_json(), "notes": notes}
        print_json({**document, "modules": [row.to_json() for row in table]})
        return 1 if step.unknown else 0
    tokens = step.tokens
    print_table(
        ["module", "", "times", "type", "forward", "backward", "recompute", ""],
        [
            (
                row.module or "(model)",
                row.kind,
                len(row.modules),
                row.dtype,
                *(_per_token(count, tokens) for count in (row.forward, row.backward, row.recompute)),
                row.detail,
            )
            for row in table
        ],
        right=["times", "forward", "backward", "recompute"],
    )
    unit = "token" if result.first.shape.length is not None else "row"
    print_text(f"FLOPs per {unit}, for a batch of {result.first.shape}")
    if step.useful_total is not None and step.executed_total is not None:
        useful, executed = step.useful_total, step.executed_total
        print_text(f"step: {useful} useful FLOPs ({useful / tokens:.4g} per {unit}), {executed} executed")
    for note in (*notes, *step.warnings):
        say(f"note: {note}")
    for unknown in step.unknown:
        say(f"unknown: {unknown}")
    return 1 if step.unknown else 0


def _per_token(count: int, tokens: int) -> str:
    return f"{count / tokens:.6g}" if count else ""
