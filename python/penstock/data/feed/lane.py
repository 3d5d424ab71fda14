"""Which rows of a step one consumer receives.

``Lane(k, of=n)`` is the k-th of n parallel consumers; of a step's rows it receives the k-th n-th. Rows are fixed before
lanes are dealt, which is what lets a run go on with a different n: the stream stays the same and only the dealing changes.
"""

from dataclasses import dataclass

from penstock.data.recipe.schedule import is_whole
from penstock.errors import RecipeInvalid


@dataclass(frozen=True, slots=True)
class Lane:
    """One of several parallel consumers."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        for count in (self.number, self.of):
            if not is_whole(count):
                raise RecipeInvalid(
                    field="lane", reason=f"must be whole numbers, got {count!r:.50}", hint="Lane(3, of=8)"
                )
        if not 0 <= self.number < self.of:
            raise RecipeInvalid(
                field="lane",
                reason=f"must be at least 0 and below {self.of}, the number of lanes, got {self.number}",
            )

    def rows(self, start: int, stop: int) -> range:
        """The positions of a step, from ``start`` to ``stop``, that belong to this lane."""
        count = stop - start
        if count % self.of:
            hint = f"choose a batch that {self.of} divides, such as {count // self.of * self.of or self.of}"
            raise RecipeInvalid(
                field="batch", reason=f"{count} rows cannot be dealt to {self.of} lanes", hint=hint
            )
        share = count // self.of
        return range(start + self.number * share, start + (self.number + 1) * share)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_lane(text: str) -> Lane:
    """A lane as the command line writes it: ``3/8``."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal()):
        raise RecipeInvalid(field="lane", reason=f"{text!r} is not of the form 3/8")
    return Lane(int(number), of=int(of))
