"""A batch after a framework's arrays were made of it: a plain dict for whoever wants one, with its origin still in reach."""

from collections.abc import Mapping
from typing import Any

from penstock.data.feed.batch import Batch, Origin
from penstock.errors import UsageError


class FrameworkBatch(dict[str, Any]):
    """What a lane gets for a step, by field. Made from a bare mapping, as frameworks do when they rebuild things, it is only a dict."""

    def __init__(self, arrays: Mapping[str, Any], *, of: Batch | None = None) -> None:
        super().__init__(arrays)
        self._of = of

    @property
    def step(self) -> int:
        """The step of the recipe; ``loader.state_dict(after=batch.step)`` resumes after it."""
        return self._host().step

    @property
    def digest(self) -> str:
        """A hash of this lane's rows, the same in every framework; see ``penstock.data.join`` for the whole step's."""
        return self._host().digest

    @property
    def host(self) -> Batch | None:
        """The batch on the host that it was made of; None when it was rebuilt from bare arrays."""
        return self._of

    def origin(self, row: int) -> list[Origin]:
        """What a row of this lane is made of, in order: version, shard, sample, bytes and tokens."""
        return self._host().origin(row)

    def __reduce__(self) -> tuple[Any, ...]:
        # The way back to the feed's memory does not travel between processes; the arrays do.
        return type(self), (dict(self),)

    def __repr__(self) -> str:
        step = "rebuilt" if self._of is None else f"step {self._of.step}"
        return f"<Batch {step}, {', '.join(f'{name} {_shown(value)}' for name, value in self.items())}>"

    def _host(self) -> Batch:
        if self._of is None:
            raise UsageError(
                "this batch was rebuilt from bare arrays, so its step and origins are not known",
                hint="take them from the batch that the loader gave, before a framework rebuilds it",
            )
        return self._of


def _shown(value: Any) -> str:
    return f"{tuple(value.shape)} {value.dtype}" if hasattr(value, "dtype") else f"list of {len(value)}"
