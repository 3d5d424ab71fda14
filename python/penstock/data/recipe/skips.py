"""Skips: steps that are left out and samples that are masked, as a list of its own beside the recipe.

A skip never changes what stands where: steps around a skipped one stay what they are, and a masked sample keeps its place
with its tokens and loses its weight in the loss. The same list gives the same result on every lane and in every replay;
the cursor names what was left out before it, so skips ahead of it can be added at any time.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from penstock._rust import digest
from penstock.errors import RecipeInvalid


@dataclass(frozen=True)
class Skips:
    """Steps to leave out, as (first, after the last), and samples to mask, as (alias of the source, row of its version)."""

    steps: tuple[tuple[int, int], ...] = ()
    samples: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        ranges = sorted((int(first), int(stop)) for first, stop in self.steps)
        for first, stop in ranges:
            if not 0 <= first < stop:
                raise RecipeInvalid(
                    field="skips",
                    reason=f"ranges must begin at step 0 or later and end after they begin, got {first} to {stop}",
                )
        joined: list[tuple[int, int]] = []
        for first, stop in ranges:
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            else:
                joined.append((first, stop))
        object.__setattr__(self, "steps", tuple(joined))
        object.__setattr__(
            self, "samples", tuple(sorted((str(alias), int(row)) for alias, row in self.samples))
        )

    def __bool__(self) -> bool:
        return bool(self.steps or self.samples)

    def digest(self, until_step: int) -> str:
        """The identity of what was left out before a step; empty when nothing was. Later skips may still be edited."""
        past = [(first, min(stop, until_step)) for first, stop in self.steps if first < until_step]
        return digest(msgspec.json.encode(past)) if past else ""

    @cached_property
    def masked(self) -> frozenset[tuple[str, int]]:
        """The masked samples, for looking up."""
        return frozenset(self.samples)

    def to_json(self) -> dict[str, Any]:
        """The list as plain values."""
        return {
            "steps": [list(span) for span in self.steps],
            "samples": [list(sample) for sample in self.samples],
        }
