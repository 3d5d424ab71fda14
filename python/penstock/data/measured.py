"""What the stages of a source say about its samples: which survive, where their tokens are, how long they are.

All of it is measured columns of the source's version: what is missing is measured now, what was measured before is found
by its key. Nothing here decides order; planning does, from these values alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _rust
from penstock.data.recipe import Recipe, Source
from penstock.data.records.choosing import TOKEN_FORMATS, reads_records
from penstock.data.stages import Filter, Stage, Tokenize
from penstock.data.verdict import Verdict
from penstock.errors import RecipeInvalid, SourceEmpty
from penstock.registry import Registry, Version
from penstock.registry.measuring import measure_version
from penstock.registry.tokens import TokenLength

#: Told what is being prepared, how much is done, and of how much.
PlanWatch = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Samples:
    """What is known of a source's samples before they are packed."""

    #: The version that holds the tokens; its rows are those of the source's version.
    tokens: Version
    #: Length of each, or None when the indexes of a token version say it.
    lengths: Any
    #: Which survive the filters and the split (None for all), and the columns that say so.
    mask: Any
    verdicts: list[str]


def measure_samples(
    recipe: Recipe, source: Source, version: Version, registry: Registry, watch: PlanWatch | None
) -> Samples:
    """Measure what a source's stages need of its version."""
    stages = recipe.stages_of(source)
    mask, verdicts = _verdicts(registry, version, stages, watch)
    if source.split != "all":
        mask, verdicts = _split(version, source, mask), [*verdicts, f"{source.split} {source.held_share!r}"]
    tokens, lengths = _tokens(registry, version, stages, watch)
    return Samples(tokens, lengths, mask, verdicts)


def _verdicts(
    registry: Registry, version: Version, stages: tuple[Stage, ...], watch: PlanWatch | None
) -> "tuple[np.ndarray[Any, np.dtype[np.bool_]] | None, list[str]]":
    mask = None
    keys = []
    for stage in (stage for stage in stages if isinstance(stage, Filter)):
        tell = _teller(watch, f"filtering {version.address}")
        column = measure_version(registry, version, Verdict(stage.expression), watch=tell)
        passed = registry.values(column).astype(bool)
        mask = passed if mask is None else mask & passed
        keys.append(column.key)
    if mask is not None and not mask.any():
        raise SourceEmpty(source=version.address, rows=version.rows)
    return mask, keys


def _split(version: Version, source: Source, mask: Any) -> Any:
    """The rows of the split that the source reads, of those that its filters leave."""
    held = np.frombuffer(
        _rust.held_out(version.digest, version.rows, source.held_share), dtype=np.uint8
    ).astype(bool)
    chosen = held if source.split == "held" else ~held
    kept = chosen if mask is None else mask & chosen
    if not kept.any():
        raise SourceEmpty(source=f"{version.address} ({source.split})", rows=version.rows)
    return kept


def _tokens(
    registry: Registry, version: Version, stages: tuple[Stage, ...], watch: PlanWatch | None
) -> "tuple[Version, np.ndarray[Any, np.dtype[np.uint32]] | None]":
    stage = next((stage for stage in stages if isinstance(stage, Tokenize)), None)
    if stage is None:
        if not reads_records(stages, version) and version.manifest.format not in TOKEN_FORMATS:
            hint = "add a Tokenize stage, or name a version of tokens (megatron, npy)"
            reason = f"{version.address} holds {version.manifest.format}, not tokens"
            raise RecipeInvalid(field="stages", reason=reason, hint=hint)
        return version, None
    measure = TokenLength(stage.tokenizer, field=stage.field, special=stage.special)
    column = measure_version(
        registry, version, measure, watch=_teller(watch, f"tokenising {version.address}")
    )
    return registry.payload(version, column), registry.values(column).astype(np.uint32)


def _teller(watch: PlanWatch | None, what: str) -> "Callable[[int, int], None] | None":
    return None if watch is None else lambda done, total: watch(what, done, total)
