"""What differs between two executions of the same steps, the cause before its effects. Pure: from records and facts.

Order within a step: the batch, the generators, the loss, the gradient norm, the parameters after it. So what is named first is what the others
follow from, as far as records can tell.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.run.journal.step_records import StepRecord, Whole, bits

#: Facts of a start that decide bits.
_SETTINGS = ("recipe", "seed", "deterministic", "ranks", "lanes", "threads", "pinned")
#: So many are listed; there is no use in more.
DIFFERENCES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Difference:
    """One item that is not the same."""

    #: ``setting``, ``step``, ``batch``, ``generator``, ``loss``, ``grad_norm``, ``parameters``, ``tensor``, ``value``.
    kind: str
    #: None for what is decided before any step.
    step: int | None
    rank: int | None
    #: Which setting, generator or tensor.
    name: str
    recorded: Any
    repeated: Any
    #: More about it, once somebody has looked: the row and where it came from, how far a tensor is off.
    more: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def sentence(self) -> str:
        """In words."""
        where = "" if self.step is None else f"step {self.step}, "
        whose = "" if self.rank is None else f"rank {self.rank}, "
        about = "; ".join(f"{name} {value}" for name, value in self.more.items())
        tail = f" ({about})" if about else ""
        return f"{where}{whose}{_what(self.kind, self.name)}: recorded {self.recorded}, now {self.repeated}{tail}"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        names = ("kind", "step", "rank", "name", "recorded", "repeated", "more", "sentence")
        return {name: getattr(self, name) for name in names}


def settings(recorded: Mapping[str, Any], repeated: Mapping[str, Any]) -> list[Difference]:
    """Of the facts of two starts: what decides bits and is not the same."""
    differences = []
    for name in _SETTINGS:
        one, other = (dict(_leaves(name, facts.get(name))) for facts in (recorded, repeated))
        for leaf in [*one, *(key for key in other if key not in one)]:
            if one.get(leaf) != other.get(leaf):
                differences.append(Difference("setting", None, None, leaf, one.get(leaf), other.get(leaf)))
    return differences


def steps(recorded: Mapping[int, Whole], repeated: Mapping[int, Whole]) -> list[Difference]:
    """Of all steps of either, in their order."""
    differences: list[Difference] = []
    for step in sorted(recorded.keys() | repeated.keys()):
        if len(differences) >= DIFFERENCES_MAX:
            break
        if step not in recorded or step not in repeated:
            one, other = ("executed" if step in side else "missing" for side in (recorded, repeated))
            differences.append(Difference("step", step, None, "", one, other))
            continue
        differences += _of_step(recorded[step], repeated[step])
    return differences


def _of_step(one: Whole, other: Whole) -> Iterator[Difference]:
    if one.ranks.keys() != other.ranks.keys():
        yield Difference("step", one.step, None, "ranks", len(one.ranks), len(other.ranks))
        return
    pairs = [(rank, record, other.ranks[rank]) for rank, record in sorted(one.ranks.items())]
    for compare in (_batch, _generators, _numbers, _parameters):
        for rank, record, again in pairs:
            for kind, name, before, now in compare(record, again):
                yield Difference(kind, one.step, rank, name, before, now)


_Found = Iterable[tuple[str, str, Any, Any]]


def _batch(one: StepRecord, other: StepRecord) -> _Found:
    return [("batch", "", one.batch, other.batch)] if one.batch != other.batch else []


def _generators(one: StepRecord, other: StepRecord) -> _Found:
    names = [*one.stands, *(name for name in other.stands if name not in one.stands)]
    pairs = [(name, one.stands.get(name), other.stands.get(name)) for name in names]
    return [("generator", name, before, now) for name, before, now in pairs if before != now]


def _numbers(one: StepRecord, other: StepRecord) -> _Found:
    for kind, name in (("loss", "loss"), ("loss", "whole_loss"), ("grad_norm", "grad_norm")):
        before, now = bits(getattr(one, name)), bits(getattr(other, name))
        if before != now:
            yield kind, name, before, now
            return


def _parameters(one: StepRecord, other: StepRecord) -> _Found:
    if one.parameters and other.parameters and one.parameters != other.parameters:
        yield "parameters", "", one.parameters, other.parameters


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in sorted(value.items()):
            yield from _leaves(f"{name}/{key}", below)
    else:
        yield name, value


_WORDS = {
    "step": "the step itself",
    "batch": "the batch",
    "loss": "the bits of the loss",
    "grad_norm": "the bits of the gradient norm",
    "parameters": "the parameters after it",
}


def _what(kind: str, name: str) -> str:
    if kind == "generator":
        return "the number of threads" if name == "threads" else f"the generator {name}"
    if kind in ("setting", "tensor", "value"):
        return f"the {kind} {name}"
    return _WORDS[kind] if kind != "loss" or name == "loss" else "the bits of the loss of all ranks"
