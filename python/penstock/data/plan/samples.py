"""What the stages of a source say about its samples: which survive, where their tokens are, how long they are.

All of it is measured columns of the source's version: what is missing is measured now, what was measured before is found
by its key. Nothing here decides order; planning does, from these values alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock import _rust
from penstock.data.maps.measure import mapped
from penstock.data.plan.filter_column import FilterColumn
from penstock.data.plan.row_filter import bind_filter, check_inner_fields
from penstock.data.recipe.recipe import Recipe, Source
from penstock.data.records.choice import TOKEN_FORMATS, reads_records
from penstock.data.stages import Chat, Filter, Map, Stage, Tokenize
from penstock.errors import RecipeInvalid, SourceEmpty
from penstock.registry import Registry, Version
from penstock.registry.columns.column import Column, Pieces, Undecodable, column_key, find_column
from penstock.registry.columns.measure import Limits, Measure, check_undecodable, measure_version
from penstock.registry.tokenize.template import find_template
from penstock.registry.tokenize.tiktoken import RankTokens
from penstock.registry.tokenize.tokens import TokenLength

#: Told what is being prepared, how much is done, and of how much.
PlanWatch = Callable[[str, int, int], None]
#: How many rows that nothing can be made of are borne as long as filters leave them out.
LEFT_OUT_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Samples:
    """What is known of a source's samples before they are packed."""

    #: The version that holds the tokens; its rows are those of the source's version (of the pieces, if only some were measured).
    tokens: Version
    #: Gives the length of each, which only a plan that is not known yet asks for; None when the indexes of a token version say it.
    lengths: Callable[[], Any] | None
    #: Which survive the filters and the split (None for all), and the columns that say so.
    mask: Any
    verdicts: list[str]
    #: The version that says which tokens count in the loss, one byte each; None when all do.
    loss: Version | None = None
    #: Samples that nothing could be made of and that the recipe masks, by row of the source's version.
    undecodable: tuple[Undecodable, ...] = ()
    #: What users should know of them.
    notes: tuple[str, ...] = ()


def measure_samples(
    recipe: Recipe,
    source: Source,
    version: Version,
    registry: Registry,
    watch: PlanWatch | None,
    *,
    pieces: Pieces = (),
) -> Samples:
    """Measure what a source's stages need of its version, or of some of its rows."""
    return _Measuring(recipe, source, version, registry, watch, tuple(pieces)).samples()


def token_measure(stage: Tokenize | Chat) -> Measure:
    """What makes tokens, as a stage declares it."""
    if isinstance(stage, Chat):
        from penstock.registry.tokenize.chat import ChatTokens, Telling

        telling = Telling(
            template=find_template(Path(stage.tokenizer), stage.template),
            field=stage.field,
            train_on=stage.train_on,
            tools=stage.tools,
            date=stage.date,
            variables=stage.variables,
            in_text=stage.special_in_text,
        )
        return ChatTokens(stage.tokenizer, telling)
    if stage.has_ranks:
        return RankTokens(
            stage.tokenizer,
            pattern=stage.pattern,
            special_tokens=dict(stage.special_tokens),
            field=stage.field,
            specials=stage.specials,
        )
    return TokenLength(stage.tokenizer, field=stage.field, specials=stage.specials)


@dataclass(frozen=True, slots=True)
class _Measuring:
    """The measurements of one source."""

    recipe: Recipe
    source: Source
    version: Version
    registry: Registry
    watch: PlanWatch | None
    pieces: Pieces

    def samples(self) -> Samples:
        """All that the stages ask for."""
        stages = self.recipe.stages_of(self.source)
        mask, verdicts, bad = self._verdicts(stages)
        if self.source.split != "all":
            mask = self._split(mask)
            verdicts.append(f"{self.source.split} {self.source.held_share!r}")
        if reads_records(stages, self.version, self.recipe.fields_of(self.source)):
            return Samples(self.version, None, mask, verdicts, undecodable=tuple(bad))
        at = next((at for at, stage in enumerate(stages) if isinstance(stage, Tokenize | Chat)), None)
        if at is None:
            self._check_tokens(stages)
            return Samples(self.version, None, mask, verdicts, undecodable=tuple(bad))
        stage = stages[at]
        assert isinstance(stage, Tokenize | Chat)
        column = self._column(token_measure(stage), stages[:at], "tokenising", bears_more=mask is not None)
        more = self._surviving(column, mask)
        loss = None
        if "loss" in column.payload_versions:
            loss = self.registry.payload(self.version, column, "loss")
        return Samples(
            tokens=self.registry.payload(self.version, column),
            lengths=lambda: self.registry.values(column).astype(np.uint32),
            mask=mask,
            verdicts=verdicts,
            loss=loss,
            undecodable=tuple(sorted({entry.row: entry for entry in (*more, *bad)}.values(), key=_row)),
            notes=column.remarks,
        )

    def _verdicts(self, stages: Sequence[Stage]) -> tuple[Any, list[str], list[Undecodable]]:
        mask = None
        keys = []
        bad: list[Undecodable] = []
        for at, stage in enumerate(stages):
            if not isinstance(stage, Filter):
                continue
            more = mask is not None
            verdict = self._verdict(stage, stages, at)
            column = self._column(verdict, stages[:at], "filtering", bears_more=more)
            bad += self._surviving(column, mask)
            passed = self.registry.values(column).astype(bool)
            mask = passed if mask is None else mask & passed
            keys.append(column.key)
        if mask is not None and not mask.any():
            raise SourceEmpty(source=self.version.address, rows=self.version.rows)
        return mask, keys, bad

    def _verdict(self, stage: Filter, stages: Sequence[Stage], at: int) -> FilterColumn:
        """A filter's verdict, its names checked; nothing is known of fields after a map."""
        maps = any(isinstance(earlier, Map) for earlier in stages[:at])
        own = self._own_columns(stages)
        verdict = FilterColumn(bind_filter(stage.expression, self.version, own=own, mapped=maps))
        key = column_key(self.version.digest, verdict.identity(), list(self.pieces))
        if not maps and find_column(self.registry.store, key) is None:
            # Of an era only a sample is looked at: others may have what this one lacks.
            check_inner_fields(stage.expression, self.version, all_rows=not self.pieces)
        return verdict

    def _own_columns(self, stages: Sequence[Stage]) -> dict[str, Callable[[], Column]]:
        """The tokens that the source's own stage makes, for a filter that asks how many they are; not of an era, which has some."""
        at = next((at for at, candidate in enumerate(stages) if isinstance(candidate, Tokenize | Chat)), None)
        if at is None or self.pieces:
            return {}
        stage = stages[at]
        assert isinstance(stage, Tokenize | Chat)
        measure, before = token_measure(stage), stages[:at]
        return {"tokens": lambda: self._column(measure, before, "tokenising", bears_more=True)}

    def _column(self, measure: Measure, before: Sequence[Stage], what: str, *, bears_more: bool) -> Column:
        """A column after the maps that come before it; rows that filters leave out may be bad."""
        maps = [stage for stage in before if isinstance(stage, Map)]
        limit = max(self._undecodable_max, LEFT_OUT_MAX) if bears_more else self._undecodable_max
        watch, message = self.watch, f"{what} {self.version.address}"
        tell = None if watch is None else lambda done, total: watch(message, done, total)
        return measure_version(
            self.registry,
            self.version,
            mapped(measure, maps, self.recipe.fields_of(self.source)),
            limits=Limits(undecodable_max=limit),
            watch=tell,
            pieces=self.pieces,
        )

    @property
    def _undecodable_max(self) -> int:
        return self.recipe.undecodable_max if self.recipe.undecodable == "mask" else 0

    def _surviving(self, column: Column, mask: Any) -> list[Undecodable]:
        """The bad rows that no filter leaves out, which must not be too many."""
        undecodable = column.undecodable
        if mask is not None and undecodable:
            places = {row: place for place, row in enumerate(self._rows())} if self.pieces else None
            undecodable = [
                entry for entry in undecodable if mask[entry.row if places is None else places[entry.row]]
            ]
        check_undecodable(self.version, column.name, undecodable, self._undecodable_max)
        return undecodable

    def _rows(self) -> Any:
        return (row for first, stop in self.pieces for row in range(first, stop))

    def _split(self, mask: Any) -> Any:
        """The rows of the split that the source reads, of those that its filters leave."""
        version, source = self.version, self.source
        held = np.frombuffer(
            _rust.held_out(version.digest, version.rows, source.held_share), dtype=np.uint8
        ).astype(bool)
        if self.pieces:
            held = np.concatenate([held[first:stop] for first, stop in self.pieces])
        chosen = held if source.split == "held" else ~held
        kept = chosen if mask is None else mask & chosen
        if not kept.any():
            raise SourceEmpty(source=f"{version.address} ({source.split})", rows=version.rows)
        return kept

    def _check_tokens(self, stages: Sequence[Stage]) -> None:
        """That rows are tokens already, and that no map was meant to change them."""
        version = self.version
        if version.manifest.format not in TOKEN_FORMATS:
            hint = "add a Tokenize or Chat stage, or name a version of tokens (megatron, npy, flat)"
            reason = f"{version.address} holds {version.manifest.format}, not tokens"
            raise RecipeInvalid(field="stages", reason=reason, hint=hint)
        kinds = [type(stage) for stage in stages if not (isinstance(stage, Map) and stage.random)]
        if Map in kinds and Filter not in kinds[kinds.index(Map) :]:
            reason = f"{version.address} holds tokens, which a map before the filters does not change"
            raise RecipeInvalid(field="stages", reason=reason, hint="leave the map out, or make it random")


def _row(undecodable: Undecodable) -> int:
    return undecodable.row
