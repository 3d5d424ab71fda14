"""``penstock data peek``: batches as training receives them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.data.record_text import print_records, record_document
from penstock.cli.output import Json, command_app, print_json
from penstock.cli.registry_place import Place, open_registry
from penstock.data import Batch
from penstock.data.feed.lane import parse_lane
from penstock.data.records import RecordBatch
from penstock.errors import UsageError
from penstock.view.address import Place as AddressPlace
from penstock.view.address import RecipeAddress
from penstock.view.bounds import parse_bounds
from penstock.view.model.records import RecordView
from penstock.view.opener import OpenedStream, Opener, OwnRegistry
from penstock.view.text import batch_lines

_TOKENS_SHOWN = 24


peek_app = command_app(
    "peek",
    "Show batches exactly as a training step receives them: after shuffling, mixing, tokenising, and packing.",
    examples=(
        "  penstock data peek recipe.toml --steps 40000\n"
        "  penstock data peek recipe.toml --lane 3/8 --steps 0:2 --rows 0:4 --json | jq .origins"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Peeked:
    """Which batches are shown, and what of them."""

    steps: Annotated[str | None, Parameter(help="Steps to show, as A:B, or one number (default: 0).")] = None
    rows: Annotated[str | None, Parameter(help="Rows of each batch, as A:B (default: all).")] = None
    step: Annotated[int, Parameter(help="First step; an older way to say --steps.")] = 0
    count: Annotated[int, Parameter(help="Batches to show; an older way to say --steps.")] = 1
    lane: Annotated[str, Parameter(help="Show what lane K of N receives, as K/N.")] = "0/1"

    def numbers(self) -> range:
        """The steps that were asked for."""
        if self.steps is not None:
            if (self.step, self.count) != (0, 1):
                raise UsageError(
                    "--steps says which steps, and so do --step and --count", hint="leave the latter out"
                )
            return parse_bounds(self.steps, of="steps").endless()
        if self.step < 0 or self.count < 1:
            raise UsageError(
                f"--step must be 0 or more, got {self.step}"
                if self.step < 0
                else f"--count must be at least 1, got {self.count}"
            )
        return range(self.step, self.step + self.count)

    def rows_of(self, count: int) -> range:
        """The rows of a batch that were asked for."""
        return range(count) if self.rows is None else range(*parse_bounds(self.rows).within(count))


@peek_app.default
def peek(
    recipe: Path,
    *,
    peeked: Annotated[Peeked | None, Parameter(name="*")] = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Rebuild batches from the recipe alone; nothing needs to be running.

    Parameters
    ----------
    recipe
        A recipe file (TOML or JSON).
    """
    asked = peeked or Peeked()
    steps = asked.numbers()
    address = RecipeAddress(str(recipe), AddressPlace(lane=parse_lane(asked.lane)))
    own: OwnRegistry = "open" if registry is None else "ignore"
    stream = Opener(open_registry(registry, recipe=recipe), own=own).open(address)
    assert isinstance(stream, OpenedStream)
    for number in steps:
        view = stream.batch(number)
        batch = view.batch if isinstance(view, RecordView) else view.arrays
        assert isinstance(batch, Batch)
        rows = asked.rows_of(view.rows)
        if json:
            print_json(_document(batch, rows))
        elif isinstance(view, RecordView):
            print_records(view.batch, rows)
        else:
            for line in batch_lines(view, (rows.start, rows.stop), (0, _TOKENS_SHOWN), ids=True):
                print(line)
            shards, uniform = batch.shards
            print(f"  from {shards} shards; a uniform draw would touch {uniform:.1f}")
    return 0


def _document(batch: Batch, rows: range) -> dict[str, object]:
    if isinstance(batch, RecordBatch):
        return record_document(batch, rows)
    tokens = batch["tokens"]
    # What a part of a batch leaves out is said; a whole one looks as it always did.
    part = {} if len(rows) == len(tokens) else {"rows": [rows.start, rows.stop]}
    return {
        **part,
        "step": batch.step,
        "digest": batch.digest,
        "shape": list(tokens.shape),
        "padding": batch.padding,
        "shards": batch.shards[0],
        "shards_uniform": batch.shards[1],
        "tokens": tokens[rows.start : rows.stop].tolist(),
        "cu_seqlens": batch["cu_seqlens"].tolist(),
        "origins": [[origin.to_json() for origin in batch.origin(row)] for row in rows],
    }
