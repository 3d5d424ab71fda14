"""Maps at the time of reading: a user's functions on rows, random ones with a generator that follows from the position.

A generator is made anew for every call, from the seed, the version, the epoch, the sample and the place of the stage. So what
a random map draws is the same on every lane, with any number of threads, and after every resume; and different in every
epoch.
"""

from typing import Any

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.data.recipe import Recipe
from penstock.data.stages import Map
from penstock.errors import CorruptShard, IndexDamaged, StoreError

#: What no recipe may mask: bytes that are not what was registered, stores that fail, and a machine without memory.
ALWAYS_RAISED = (CorruptShard, IndexDamaged, StoreError, MemoryError)


class StageFailed(Exception):
    """A stage can make nothing of a sample; the caller knows which sample it is, and what the recipe says."""

    def __init__(self, stage: str, reason: BaseException) -> None:
        self.stage = stage
        self.reason = f"{type(reason).__name__}: {reason}"[:500]
        super().__init__(f"{stage}: {self.reason}")


def generator(seed: int, version: str, epoch: int, sample: int, stage: int) -> np.random.Generator:
    """The generator of one call: a pure function of what is given."""
    key = digest(msgspec.json.encode(("random map", seed, version, epoch, sample, stage)))
    return np.random.Generator(np.random.Philox(key=int(key.removeprefix("b3:")[:32], 16)))


class Maps:
    """The maps of one source, in their order."""

    def __init__(self, recipe: Recipe, alias: str, version: str) -> None:
        source = next(each for each in recipe.sources if each.alias == alias)
        stages = enumerate(recipe.stages_of(source))
        self._stages = [(place, stage) for place, stage in stages if isinstance(stage, Map)]
        self._seed = recipe.seed
        self._version = version

    def __bool__(self) -> bool:
        return bool(self._stages)

    @property
    def random(self) -> list[Map]:
        """The random ones."""
        return [stage for _, stage in self._stages if stage.random]

    def row(self, row: Any, *, epoch: int, sample: int) -> Any:
        """A row after all maps."""
        for place, stage in self._stages:
            row = self._call(place, stage, row, epoch, sample)
        return row

    def drawn(self, value: Any, *, epoch: int, sample: int) -> Any:
        """A value after the random maps alone; the others ran when it was measured."""
        for place, stage in self._stages:
            if stage.random:
                value = self._call(place, stage, value, epoch, sample)
        return value

    def _call(self, place: int, stage: Map, value: Any, epoch: int, sample: int) -> Any:
        try:
            if not stage.random:
                return stage.called(value)
            return stage.called(value, generator(self._seed, self._version, epoch, sample, place))
        except ALWAYS_RAISED:
            raise
        # A user's function may raise anything; what it raises says that it can make nothing of the sample.
        except Exception as reason:
            raise StageFailed(f"map {stage.name}", reason) from reason
