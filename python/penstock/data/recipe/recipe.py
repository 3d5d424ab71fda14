"""The recipe: everything that determines a stream and its batches, as a frozen value with a digest.

A recipe in Python and the same recipe in TOML are equal and have the same digest. The digest covers what affects batches
(sources, stages by content, seed, batch, weights) and nothing else. ``prefix`` is the digest of what matters up to a step:
a recipe may be edited later in its schedule without losing the cursors made before the edit.
"""

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock._rust import digest
from penstock.data.recipe.fields import read_fields
from penstock.data.recipe.names import check_name, not_one_of, suggestion
from penstock.data.recipe.schedule import cut, read_schedule
from penstock.data.recipe.weights import (
    Ramp,
    WeightEntry,
    Weights,
    check_weights,
    entry_pairs,
    read_weights,
    weight_entries,
)
from penstock.data.stages import Chat, Pack, Pad, Stage, Tokenize, check_stages, stage_of, until
from penstock.errors import RecipeInvalid
from penstock.registry import Registry

_BATCH_MAX = 1 << 24
Shuffle = Literal["full", "local", "none"]
SHUFFLES = ("full", "local", "none")
EXHAUSTIONS = ("stop", "drop", "pad")
UNDECODABLES = ("raise", "mask")
MEASURES = ("all", "eras")
SPLITS = ("all", "train", "held")


@dataclass(frozen=True)
class Source:
    """A version inside a recipe."""

    #: The version's address: ``web@3``, ``web@gold``.
    name: str
    #: Its share of rows, relative to the other sources'.
    weight: float = 1.0
    #: What schedules and statistics call it; its dataset's name unless given.
    alias: str = ""
    #: Stages of this source alone; they run before the recipe's own.
    stages: tuple[Stage, ...] = ()
    #: How often it may be read; None for endlessly.
    epochs: int | None = None
    #: ``train`` leaves a fixed share of rows out, ``held`` reads only those; the same rows for every recipe of the version.
    split: Literal["all", "train", "held"] = "all"
    #: The share that is held out.
    held_share: float = 0.01
    #: Of records: the fields that are read; others are neither decoded nor delivered nor digested. The recipe's unless given.
    fields: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", _listed("stages", self.stages, Stage, "stages=[Pack(2048)]"))
        object.__setattr__(self, "fields", read_fields(self.fields))
        if not (isinstance(self.name, str) and self.name):
            raise RecipeInvalid(
                field="sources",
                reason=f"must be the name of a version, got {self.name!r:.100}",
                hint='name = "web@3"',
            )
        check_name("alias", self.alias, may_be_empty=True)
        if not self.alias:
            object.__setattr__(self, "alias", self.name.partition("@")[0])
        if isinstance(self.weight, bool) or not (
            isinstance(self.weight, int | float) and 0 <= self.weight < float("inf")
        ):
            raise RecipeInvalid(
                field="weight", reason=f"the weight of {self.alias} is {self.weight!r}, not a positive number"
            )
        for name in ("weight", "held_share"):
            # Numbers of numpy cannot be written down.
            if isinstance(getattr(self, name), float):
                object.__setattr__(self, name, float(getattr(self, name)))
        if self.split not in SPLITS:
            raise RecipeInvalid(
                field="split", reason=not_one_of(self.split, SPLITS), hint=suggestion(self.split, SPLITS)
            )
        if not (isinstance(self.held_share, float) and 0 < self.held_share < 1):
            raise RecipeInvalid(field="held_share", reason=f"a share of {self.held_share} cannot be held out")
        if self.epochs is not None and (type(self.epochs) is not int or self.epochs < 1):
            raise RecipeInvalid(field="epochs", reason=f"{self.alias} would be read {self.epochs!r} times")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a stream and its batches: sources, stages, seed, batch and schedules."""

    sources: tuple[Source, ...]
    #: Rows per step over all lanes, or a schedule ``[(0, 32), (1000, 64)]``.
    batch: int | tuple[tuple[int, int], ...]
    seed: int = 0
    stages: tuple[Stage, ...] = ()
    #: Schedule of weights by step, ``[(0, {"web": 0.7, …}), (5000, Ramp({"web": 0.5, …}, until=9000))]``; overrides the sources' own.
    weights: tuple[tuple[int, Weights | Ramp], ...] = ()
    #: ``full``: every block is a uniform draw. ``local``: neighbours stay together, best for disks. ``none``: as stored.
    shuffle: Shuffle = "full"
    #: When a source with a limit on epochs is spent: ``stop`` before the step that cannot be filled, ``pad`` that step with
    #: empty rows and stop (for evaluation), or ``drop`` the source and go on.
    exhaustion: Literal["stop", "drop", "pad"] = "stop"
    #: A sample that a stage cannot make anything of: ``raise``, or ``mask`` it (it counts as empty and is listed in the plan).
    undecodable: Literal["raise", "mask"] = "raise"
    #: How many such samples a source may have before it is an error all the same.
    undecodable_max: int = 1000
    #: ``all``: everything is measured before the first batch. ``eras``: portions of a version are measured, planned and read one
    #: after another, so that the first batch of any amount of text comes soon; see ``eras.py``.
    measure: Literal["all", "eras"] = "all"
    #: Of records: the fields that are read, of all sources that do not say it themselves; None for all fields.
    fields: tuple[str, ...] | None = None
    #: The registry its sources are looked up in, unless another is given: a directory or a URL. Where data lies is no part of
    #: what a stream is, so it is neither in the digest nor compared.
    registry: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "sources", _listed("sources", self.sources, Source, 'sources=[Source("web")]')
        )
        object.__setattr__(self, "stages", _listed("stages", self.stages, Stage, "stages=[Pack(2048)]"))
        object.__setattr__(self, "fields", read_fields(self.fields))
        object.__setattr__(self, "registry", _checked_registry(self.registry))
        schedule = ((0, self.batch),) if isinstance(self.batch, int) else self.batch
        batch = read_schedule("batch", schedule, int, hint="batch = 64, or [[0, 32], [1000, 64]]")
        object.__setattr__(self, "batch", batch)
        object.__setattr__(self, "weights", read_weights(self.weights))
        _check_sources(self.sources)
        for _, rows in batch:
            if not 1 <= rows <= _BATCH_MAX:
                raise RecipeInvalid(field="batch", reason=f"a step has 1 to {_BATCH_MAX:,} rows, not {rows}")
        check_weights(self.weights or ((0, self._own_weights),), set(self._own_weights))
        if self.shuffle not in SHUFFLES:
            raise RecipeInvalid(
                field="shuffle",
                reason=not_one_of(self.shuffle, SHUFFLES),
                hint=suggestion(self.shuffle, SHUFFLES),
            )
        if self.exhaustion not in EXHAUSTIONS:
            raise RecipeInvalid(
                field="exhaustion",
                reason=not_one_of(self.exhaustion, EXHAUSTIONS),
                hint=suggestion(self.exhaustion, EXHAUSTIONS),
            )
        if self.undecodable not in UNDECODABLES:
            raise RecipeInvalid(
                field="undecodable",
                reason=not_one_of(self.undecodable, UNDECODABLES),
                hint=suggestion(self.undecodable, UNDECODABLES),
            )
        if type(self.undecodable_max) is not int or self.undecodable_max < 0:
            raise RecipeInvalid(
                field="undecodable_max",
                reason=f"must be a whole number from 0 on, got {self.undecodable_max!r:.50}",
            )
        if type(self.seed) is not int or not -(1 << 63) <= self.seed < 1 << 63:
            raise RecipeInvalid(
                field="seed", reason=f"must be a whole number of 64 bits, got {self.seed!r:.50}"
            )
        for source in self.sources:
            check_stages(self.stages_of(source), source.alias)
        _check_measure(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recipe":
        """A recipe from a TOML file, or from a JSON file of the same form; paths in it are relative to the file."""
        if not isinstance(path, str | os.PathLike):
            raise RecipeInvalid(field="file", reason=f"must be the path of a recipe, got {path!r:.100}")
        place = Path(path)
        form = "JSON" if place.suffix.lower() == ".json" else "TOML"
        try:
            text = place.read_text(encoding="utf-8-sig")
            document = msgspec.json.decode(text) if form == "JSON" else tomllib.loads(text)
        except OSError as reason:
            raise RecipeInvalid(field="file", reason=f"cannot read {place}: {reason.strerror}") from reason
        except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError) as reason:
            raise RecipeInvalid(field="file", reason=f"{place} must be {form}: {reason}") from reason
        if not isinstance(document, dict):
            raise RecipeInvalid(field="file", reason=f"{place} holds no table")
        return recipe_of(document, folder=place.parent)

    def open_registry(self) -> Registry:
        """The registry that the recipe names, or the default one."""
        return Registry(self.registry or None)

    def stages_of(self, source: Source) -> tuple[Stage, ...]:
        """A source's own stages, then the recipe's."""
        return (*source.stages, *self.stages)

    def fields_of(self, source: Source) -> tuple[str, ...] | None:
        """The fields that are read of a source, by name; None for all."""
        return self.fields if source.fields is None else source.fields

    @cached_property
    def digest(self) -> str:
        """The identity of the recipe as written; versions count by address here, by digest in a cursor."""
        return digest(msgspec.json.encode(self.document(), order="deterministic"))

    def document(
        self, versions: dict[str, str] | None = None, *, until_step: int | None = None
    ) -> dict[str, Any]:
        """Everything that affects batches (of steps before ``until_step``), with versions by digest if they are given."""
        weights = [
            entry for _, entry in cut([(entry.step, entry) for entry in self.weight_entries], until_step)
        ]
        used = {
            alias
            for entry in weights
            for side in (entry.weights, entry.until)
            for alias, weight in side.items()
            if weight > 0
        }
        sources = [
            {
                "version": (versions or {}).get(source.alias, source.name),
                "alias": source.alias,
                "stages": [until(stage, until_step) for stage in self._stage_documents[source.alias]],
                "epochs": source.epochs,
                "split": None if source.split == "all" else [source.split, source.held_share],
                # As those below: only when it is used.
                **({} if (chosen := self.fields_of(source)) is None else {"fields": chosen}),
            }
            for source in self.sources
            if source.alias in used
        ]
        document = {
            "sources": sources,
            "seed": self.seed,
            "batch": cut(self.batch_schedule, until_step),
            "weights": [(entry.step, entry.document()) for entry in weights],
            "shuffle": self.shuffle,
            "exhaustion": self.exhaustion,
        }
        # Fields that came later count only when they are used, so that digests from before stay what they were.
        later = {"undecodable": self.undecodable, "measure": self.measure}
        return document | {name: value for name, value in later.items() if value not in ("raise", "all")}

    def prefix(self, versions: dict[str, str], step: int) -> str:
        """The digest of everything that the steps before ``step`` depend on."""
        return digest(msgspec.json.encode(self.document(versions, until_step=step), order="deterministic"))

    def with_special_tokens_in_text(self) -> "Recipe":
        """The recipe as recipes were when text that spells special tokens became those tokens."""
        sources = [replace(source, stages=_spelling(source.stages)) for source in self.sources]
        return replace(self, sources=tuple(sources), stages=_spelling(self.stages))

    @cached_property
    def _stage_documents(self) -> dict[str, list[dict[str, Any]]]:
        """Stages by content, read once: a tokenizer that is edited during a run must not change its cursors."""
        return {s.alias: [stage.document() for stage in self.stages_of(s)] for s in self.sources}

    @property
    def batch_schedule(self) -> tuple[tuple[int, int], ...]:
        """Rows per step, from which step on."""
        assert not isinstance(self.batch, int)
        return self.batch

    @property
    def _own_weights(self) -> Weights:
        return {source.alias: source.weight for source in self.sources}

    @cached_property
    def weight_entries(self) -> tuple[WeightEntry, ...]:
        """Weights by alias, from which step on, and where they move to; shares of one."""
        return weight_entries(self.weights, self._own_weights)

    @cached_property
    def weight_schedule(self) -> tuple[tuple[int, Weights], ...]:
        """Weights by alias at every step at which they change or a ramp begins or ends; shares of one."""
        return entry_pairs(self.weight_entries)

    def weights_at(self, step: int) -> Weights:
        """The shares of a step."""
        return next(entry for entry in reversed(self.weight_entries) if entry.step <= step).at(step)


def recipe_of(document: dict[str, Any], *, folder: Path) -> Recipe:
    """A recipe from plain values, as a TOML file has them."""
    rest = dict(document)
    stages = _stages_of(_tables("stages", rest.pop("stages", [])), folder)
    sources = []
    for table in _tables("sources", rest.pop("sources", [])):
        values = dict(table)
        values["stages"] = _stages_of(_tables("stages", values.get("stages", [])), folder)
        _only(values, [attribute.name for attribute in fields(Source)], "sources")
        if "name" not in values:
            raise RecipeInvalid(field="sources", reason="a source has no name")
        sources.append(Source(**values))
    _only(rest, [attribute.name for attribute in fields(Recipe)], "recipe")
    if "registry" in rest:
        rest["registry"] = _placed_registry(_checked_registry(rest["registry"]), folder)
    if "batch" not in rest:
        raise RecipeInvalid(field="batch", reason="it is missing", hint="batch = 64")
    return Recipe(sources=tuple(sources), stages=stages, **rest)


def _checked_registry(registry: Any) -> str:
    if not isinstance(registry, str | os.PathLike):
        raise RecipeInvalid(
            field="registry",
            reason=f"must be a directory or a URL, got {registry!r:.100}",
            hint='registry = "registry"',
        )
    return str(os.fspath(registry))


def _placed_registry(place: str, folder: Path) -> str:
    """A registry as a recipe's file names it: a directory is relative to the file, a URL is not."""
    return place if not place or "://" in place else str(folder / Path(place).expanduser())


def _spelling(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages that take text for special tokens where it spells some; ranks never did so unless they were told to."""
    return tuple(
        replace(stage, special_in_text="token")
        if isinstance(stage, Chat) or (isinstance(stage, Tokenize) and not stage.has_ranks)
        else stage
        for stage in stages
    )


def _listed(field: str, value: Any, kind: Any, example: str) -> tuple[Any, ...]:
    """A list of sources or of stages; one alone, or a name, is a mistake that is easily made."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        reason = f"must be a list, got {value!r:.100}"
        raise RecipeInvalid(field=field, reason=reason, hint=f"for example {example}")
    items = tuple(value)
    for item in items:
        if not isinstance(item, kind):
            reason = f"{item!r:.100} is not a {field.removesuffix('s')}"
            raise RecipeInvalid(field=field, reason=reason, hint=f"for example {example}")
    return items


def _check_sources(sources: tuple[Source, ...]) -> None:
    if not sources:
        raise RecipeInvalid(field="sources", reason="there is none")
    aliases = [source.alias for source in sources]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise RecipeInvalid(
                field="sources", reason=f"two are called {alias!r}", hint="give one of them an alias"
            )


def _tables(field: str, value: Any) -> list[dict[str, Any]]:
    if not (isinstance(value, list) and all(isinstance(table, dict) for table in value)):
        raise RecipeInvalid(
            field=field, reason=f"must be a list of tables, got {value!r:.100}", hint=f"[[{field}]]"
        )
    return value


def _check_measure(recipe: Recipe) -> None:
    if recipe.measure not in MEASURES:
        raise RecipeInvalid(
            field="measure",
            reason=not_one_of(recipe.measure, MEASURES),
            hint=suggestion(recipe.measure, MEASURES),
        )
    for source in recipe.sources:
        shapes = [stage for stage in recipe.stages_of(source) if isinstance(stage, Pack | Pad)]
        if recipe.measure == "eras" and any(
            isinstance(shape, Pack) and shape.policy == "crop" for shape in shapes
        ):
            reason = f"crops of {source.alias} are drawn from all its tokens, which eras do not know"
            raise RecipeInvalid(
                field="measure", reason=reason, hint='measure = "all", or pack by concat or fit'
            )
        lengths = [stage.lengths for stage in shapes]
        if recipe.measure == "eras" and any(len(schedule) > 1 for schedule in lengths):
            reason = f"rows of {source.alias} change their length, which cannot be planned before all eras are measured"
            raise RecipeInvalid(
                field="measure", reason=reason, hint='measure = "all", or one length instead of eras'
            )


def _stages_of(documents: Any, folder: Path) -> tuple[Stage, ...]:
    return tuple(
        document if isinstance(document, Stage) else stage_of(document, folder=folder)
        for document in documents
    )


def _only(values: dict[str, Any], known: list[str], where: str) -> None:
    for name in values:
        if name not in known:
            reason = f"unknown field {name!r}"
            raise RecipeInvalid(field=where, reason=reason, hint=suggestion(name, known))
