"""Maps at the time of reading: a user's functions on rows, random ones with a generator that follows from the position.

A generator is made anew for every call, from the seed, the version, the epoch, the sample and the place of the stage. So what
a random map draws is the same on every lane, with any number of threads, and after every resume; and different in every
epoch.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.data.recipe.recipe import Recipe
from penstock.data.stages import Map, Stage
from penstock.errors import CorruptShard, IndexDamaged, StoreError

#: What no recipe may mask: bytes that are not what was registered, stores that fail, and a machine without memory.
ALWAYS_RAISED = (CorruptShard, IndexDamaged, StoreError, MemoryError)


class StageFailed(Exception):
    """A stage can make nothing of a sample; the caller knows which sample it is, and what the recipe says."""

    def __init__(self, stage: str, reason: BaseException) -> None:
        self.stage = stage
        self.reason = f"{type(reason).__name__}: {reason}"[:500]
        super().__init__(f"{stage}: {self.reason}")


def is_drawn(stages: Iterable[Stage]) -> bool:
    """Whether any of the stages draws at random."""
    return any(isinstance(stage, Map) and stage.random for stage in stages)


def drawn_length(stages: Iterable[Stage]) -> int | None:
    """The length that is planned for every sample, where a map may change it; None where samples keep theirs."""
    declared = [stage.length_max for stage in stages if isinstance(stage, Map) and stage.random]
    return next((length for length in reversed(declared) if length is not None), None)


def generator(seed: int, version: str, epoch: int, sample: int, stage: int) -> np.random.Generator:
    """The generator of one call: a pure function of what is given."""
    key = digest(msgspec.json.encode(("random map", seed, version, epoch, sample, stage)))
    return np.random.Generator(np.random.Philox(key=int(key.removeprefix("b3:")[:32], 16)))


class Maps:
    """The maps of one source, in their order."""

    def __init__(self, recipe: Recipe, alias: str, version: str) -> None:
        source = next(candidate for candidate in recipe.sources if candidate.alias == alias)
        stages = enumerate(recipe.stages_of(source))
        self._stages = [(place, stage) for place, stage in stages if isinstance(stage, Map)]
        self._seed = recipe.seed
        self._version = version
        self._busy_s = 0.0
        #: Threads call maps side by side.
        self._adding = threading.Lock()

    @property
    def busy_s(self) -> float:
        """Seconds that all threads have spent in them."""
        return self._busy_s

    def __bool__(self) -> bool:
        return bool(self._stages)

    def row(self, row: Any, *, epoch: int, sample: int) -> Any:
        """A row after all maps."""
        for place, stage in self._stages:
            row = self._call(place, stage, row, epoch, sample)
        return row

    def tokens(self, tokens: Any, *, epoch: int, sample: int) -> Any:
        """Tokens after the random maps alone; the others ran when they were measured."""
        for place, stage in self._stages:
            if stage.random:
                length_before = len(tokens)
                tokens = np.asarray(self._call(place, stage, tokens, epoch, sample))
                self._check_tokens(stage, tokens, length_before)
        return tokens

    @staticmethod
    def _check_tokens(stage: Map, tokens: Any, length_before: int) -> None:
        """What comes out has the length that was planned for it."""
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            reason = f"it gave {tokens.dtype} of shape {tokens.shape}, but tokens are whole numbers in a row"
        elif stage.length_max is None and len(tokens) != length_before:
            reason = f"it gave {len(tokens)} tokens for {length_before}; say length_max= if it may change the length"
        elif stage.length_max is not None and len(tokens) > stage.length_max:
            reason = f"it gave {len(tokens)} tokens, but length_max is {stage.length_max}"
        else:
            return
        raise StageFailed(f"map {stage.name}", ValueError(reason))

    def _call(self, place: int, stage: Map, value: Any, epoch: int, sample: int) -> Any:
        begun = time.perf_counter()
        try:
            if not stage.random:
                return stage.called(value)
            return stage.called(value, generator(self._seed, self._version, epoch, sample, place))
        except ALWAYS_RAISED:
            raise
        # A user's function may raise anything; what it raises says that it can make nothing of the sample.
        except Exception as reason:
            raise StageFailed(f"map {stage.name}", reason) from reason
        finally:
            with self._adding:
                self._busy_s += time.perf_counter() - begun
