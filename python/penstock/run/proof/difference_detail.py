"""Looking closer at a difference: which rows of a batch, which tensors of a checkpoint."""

from collections.abc import Iterator
from typing import Any

from penstock.data import Recipe, SkipJournal, batch_at
from penstock.errors import PenstockError
from penstock.registry import Registry
from penstock.run.directory import RunDirectory
from penstock.run.journal.step_records import Whole
from penstock.run.proof.difference import Difference
from penstock.state import Checkpoint
from penstock.state.inspect.difference import Change
from penstock.state.inspect.difference import difference as state_difference
from penstock.state.inspect.piece_reader import Reader

#: Of origins of a row.
_ORIGINS_SHOWN = 3


def row(
    places: tuple[RunDirectory, RunDirectory], recipes: tuple[str, str], wholes: tuple[Whole, Whole]
) -> dict[str, Any]:
    """The first row of a batch that differs, with where it came from in both; what cannot be rebuilt is said instead."""
    sides = []
    for which, place, recipe, whole in zip(("recorded", "repeated"), places, recipes, wholes, strict=True):
        try:
            sides.append(_Rebuilt(place, recipe, whole))
        except (PenstockError, OSError) as reason:
            return {"rows": f"not compared, because the {which} batch cannot be rebuilt: {reason}"}
    one, other = sides
    if one.rows != other.rows:
        return {"rows": f"{one.rows} recorded, {other.rows} now"}
    for number in range(one.rows):
        if one.row(number) != other.row(number):
            return {"row": number, "recorded from": one.origin(number), "now from": other.origin(number)}
    return {"rows": "tokens and origins are the same, so what differs is in between: boundaries or masks"}


class _Rebuilt:
    """A batch, made again from the recipe and the skips it was made with."""

    def __init__(self, place: RunDirectory, recipe: str, whole: Whole) -> None:
        loaded, skips = Recipe.load(place.recipe(recipe)), SkipJournal(place.skips).read()
        registry = Registry(place.about().registry)
        self._batch = batch_at(loaded, step=whole.step, registry=registry, skips=skips)
        if self._batch.digest != whole.batch:
            raise _NoLonger(f"recipe and skips now give {self._batch.digest}, not {whole.batch}")
        self.rows = len(next(iter(self._batch.values())))

    def row(self, number: int) -> tuple[list[bytes], list[dict[str, Any]]]:
        """What tells it from others: its content, and where it came from."""
        names = [name for name in ("tokens",) if name in self._batch]
        return [self._batch[name][number].tobytes() for name in names], self._origins(number)

    def origin(self, number: int) -> list[dict[str, Any]]:
        """The beginning of it."""
        return self._origins(number)[:_ORIGINS_SHOWN]

    def _origins(self, number: int) -> list[dict[str, Any]]:
        return [origin.to_json() for origin in self._batch.origin(number)]


class _NoLonger(PenstockError):
    """What was recorded is not what there is."""


def tensors(one: Checkpoint, other: Checkpoint) -> Iterator[Difference]:
    """Tensors and values that differ between the checkpoints of a step, in the order of their names."""
    if _same(one, other):
        return
    comparison = state_difference(Reader(one.manifest, one.store), Reader(other.manifest, other.store))
    step = one.step
    for change in sorted(comparison.changes, key=lambda change: change.name):
        more = {
            "tensors that differ": len(comparison.changes),
            "of": comparison.equal + len(comparison.changes),
        }
        yield Difference("tensor", step, None, change.name, *_sides(change), more | _by(change))
    for name in comparison.removed:
        yield Difference("tensor", step, None, name, "there", "missing")
    for name in comparison.added:
        yield Difference("tensor", step, None, name, "missing", "there")
    for name, (before, now) in comparison.values.items():
        yield Difference("value", step, None, name, before, now)


def _same(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether hashes alone say so; usually they do."""
    old, new = one.manifest, other.manifest
    return (
        old.chunk_bytes == new.chunk_bytes
        and old.values == new.values
        and old.tensors.keys() == new.tensors.keys()
        and all(tensor.identity == new.tensors[name].identity for name, tensor in old.tensors.items())
    )


def _sides(change: Change) -> tuple[str, str]:
    one, other = (f"{dtype}{list(shape)}" for dtype, shape in zip(change.dtypes, change.shapes, strict=True))
    return one, (other if one != other else f"{change.changed} of {change.elements} elements differ")


def _by(change: Change) -> dict[str, Any]:
    return {"largest by": change.greatest} if change.comparable else {}
