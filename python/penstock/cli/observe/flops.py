"""``penstock flops``: what a step of a model costs, before anything runs."""

import os
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_table, print_text, say
from penstock.errors import UsageError

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
    # Nothing is loaded from the Hub: a configuration is enough.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from penstock.torch import flops as count
        from penstock.torch.arithmetic.model_source import model_and_batch
    except ImportError as reason:
        raise UsageError("counting FLOPs needs torch", hint="pip install torch") from reason
    module, batch = model_and_batch(model, rows=rows, length=length, dtype=dtype)
    return _show(count(module, batch, backward=not forward_only), json=json)


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
