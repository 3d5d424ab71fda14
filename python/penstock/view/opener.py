"""From an address to what can be looked at: versions, and streams of batches that are rebuilt at any step.

An ``Opener`` keeps what it has opened, so that the next page of the same thing is quick: the plan of a recipe, which takes longest, and
the last few batches. A recipe that was edited is opened anew. Nothing is written, except what any opening of a recipe
measures once and keeps in the registry.
"""

import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.data import Recipe, SkipJournal, Skips
from penstock.data.feed.feed import batch_of
from penstock.data.feed.lane import Lane
from penstock.data.plan.plan import Plan, prepare
from penstock.data.plan.samples import PlanWatch
from penstock.data.recipe.recipe import recipe_of
from penstock.data.records import RecordBatch
from penstock.errors import RowOutOfRange, RunUnknown, TokenOutOfRange, UsageError
from penstock.registry import Registry
from penstock.view.address import Address, Place, RunAddress, StreamAddress, VersionAddress, at
from penstock.view.model.records import RecordView
from penstock.view.model.rows import VersionView
from penstock.view.model.tokens.batch import BatchView, view_of
from penstock.view.model.tokens.vocabulary import Vocabulary, read_vocabulary, tokenizing, vocabulary_of

if TYPE_CHECKING:
    from penstock.run.directory import RunDirectory
    from penstock.view.tap.reader import Tapped

#: Plans, and batches of one stream, that are kept.
PLANS_MAX, BATCHES_MAX = 8, 16
AnyBatch: TypeAlias = BatchView | RecordView
#: A recipe that names its registry is opened with that one, refused where only one registry is shown, or, where another was
#: asked for, opened with the one that was asked for.
OwnRegistry: TypeAlias = Literal["open", "refuse", "ignore"]


class OpenedVersion(VersionView):
    """A version, and the row that the address names."""

    def __init__(self, address: VersionAddress, registry: Registry) -> None:
        super().__init__(registry.resolve(address.version))
        #: The row that was asked for, if one was.
        self.chosen_row = address.row
        if address.row is not None:
            self.address = VersionAddress(self.version.address, address.row)


class OpenedStream:
    """A recipe or a run, of which any step can be shown."""

    kind = "stream"

    def __init__(
        self,
        address: StreamAddress,
        plan: Plan,
        vocabularies: Sequence[Vocabulary | None],
        taps: "Callable[[], list[Tapped]]" = list,
    ) -> None:
        self.address = address
        self._taps = taps
        self.plan = plan
        self.vocabularies = list(vocabularies)
        self._batches: OrderedDict[tuple[int, Lane], AnyBatch] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def step(self) -> int:
        """The step that the address names. Where it names none: the first, or of a run the one that it is at, or was at last."""
        step = self.address.place.step
        if step is not None or not isinstance(self.address, RunAddress):
            return step or 0
        from penstock.run.journal.step_records import last_step

        steps = [tap.step for tap in self.live() if tap.step is not None]
        return max(steps, default=max(0, last_step(self.address.run)))

    def live(self) -> "list[Tapped]":
        """What processes that read it now have in their hands; those on other machines are taken to be alive."""
        return [tap for tap in self._taps() if tap.alive is not False]

    @property
    def lane(self) -> Lane:
        """The lane that the address names; all rows where it names none."""
        return self.address.place.lane or Lane()

    def at(self, step: int | None = None, lane: Lane | None = None) -> StreamAddress:
        """The address of a batch."""
        chosen = self.lane if lane is None else lane
        kept = None if chosen == Lane() else chosen
        return at(self.address, step=self.step if step is None else step, lane=kept, row=None, token=None)

    def batch(self, step: int | None = None, lane: Lane | None = None) -> AnyBatch:
        """The batch of a step and a lane; those of the address unless others are given."""
        key = (self.step if step is None else step, self.lane if lane is None else lane)
        with self._lock:
            known = self._batches.get(key)
            if known is not None:
                self._batches.move_to_end(key)
                return known
        batch = batch_of(self.plan, *key)
        address = self.at(*key)
        view: AnyBatch
        if isinstance(batch, RecordBatch):
            view = RecordView(batch, address=address, lane=key[1])
        else:
            view = view_of(batch, self.plan, address=address, lane=key[1], vocabularies=self.vocabularies)
        with self._lock:
            self._batches[key] = view
            while len(self._batches) > BATCHES_MAX:
                self._batches.popitem(last=False)
        return view


Opened: TypeAlias = OpenedVersion | OpenedStream


class Opener:
    """Opens addresses. Safe to use from any thread."""

    def __init__(
        self,
        registry: Registry,
        *,
        runs: Sequence[Path] = (),
        taps: Path | None = None,
        tokenizer: Path | None = None,
        watch: PlanWatch | None = None,
        measure: bool = True,
        own: OwnRegistry = "open",
    ) -> None:
        self.registry = registry
        #: What is done with a recipe that names a registry of its own.
        self._own = own
        #: Folders in which a run is looked for by its name.
        self._runs = tuple(runs)
        #: Folder of taps of feeds that belong to no run.
        self._taps = taps
        #: For sources whose tokens nothing in the recipe explains.
        self._tokenizer = tokenizer
        #: Told of what is measured; a recipe that nobody has opened before is measured, unless that is refused.
        self._watch = watch if measure else _refuse_measuring
        self._streams: OrderedDict[object, OpenedStream] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, address: Address) -> Opened:
        """What stands at an address."""
        if isinstance(address, VersionAddress):
            return OpenedVersion(address, self.registry)
        if isinstance(address, RunAddress):
            return self._run(address)
        recipe = Recipe.load(address.path)
        return self._stream(address, recipe, self._registry_of(recipe), Skips())

    def run(self, name: str) -> "RunDirectory":
        """The directory of a run, given as such or by its name."""
        # The floor of runs is imported for runs alone: it would double the time to the first screen.
        from penstock.run.directory import RunDirectory

        places = [Path(name), *(folder / name for folder in self._runs)]
        run = next((candidate for candidate in map(RunDirectory, places) if candidate.is_run()), None)
        if run is None:
            raise RunUnknown(directory=name)
        return run

    def _run(self, address: RunAddress) -> OpenedStream:
        """A run, or a feed that is published outside of one, by the number of its process or the name of its file."""
        from penstock.view.tap.reader import read_tap, taps_in

        alone = None if self._taps is None else _tap_of(self._taps, address.run)
        if alone is not None:
            tap = read_tap(alone)
            if tap is not None and isinstance(tap.about.get("recipe"), dict):
                recipe = recipe_of(tap.about["recipe"], folder=Path())
                skips = Skips(**tap.about["skips"])
                registry = self._registry_at(str(tap.about["registry"]))
                return self._stream(address, recipe, registry, skips, lambda: _read(alone))
        directory = self.run(address.run)
        registry = self._registry_at(directory.about().registry)
        skips = SkipJournal(directory.skips).read()
        place = RunAddress(str(directory.path), address.place)
        return self._stream(place, _recipe_of(directory), registry, skips, lambda: taps_in(directory.taps))

    def _registry_of(self, recipe: Recipe) -> Registry:
        """The registry that a recipe is opened with."""
        if not recipe.registry or self._own == "ignore":
            return self.registry
        named = recipe.open_registry()
        if named.url == self.registry.url:
            return self.registry
        if self._own == "refuse":
            raise UsageError(
                f"the recipe reads another registry: {recipe.registry}",
                hint=f"look at it with --registry {shlex.quote(recipe.registry)}",
            )
        return self._registry_at(named.url)

    def _registry_at(self, url: str) -> Registry:
        if url.startswith(("penstock://", "penstocks://")):
            # Its batches were made by a service; the registry behind it is for whoever looks to name.
            return self.registry
        return self.registry if self.registry.url == url else Registry(url)

    def _stream(
        self,
        address: StreamAddress,
        recipe: Recipe,
        registry: Registry,
        skips: Skips,
        taps: "Callable[[], list[Tapped]]" = list,
    ) -> OpenedStream:
        key = (replace(address, place=Place()), recipe.digest, registry.url, skips)
        with self._lock:
            known = self._streams.get(key)
            if known is not None:
                self._streams.move_to_end(key)
        if known is None:
            plan = prepare(recipe, registry, self._watch, skips=skips)
            known = OpenedStream(address, plan, self._vocabularies(plan), taps)
            with self._lock:
                self._streams[key] = known
                while len(self._streams) > PLANS_MAX:
                    self._streams.popitem(last=False)
        if known.address == address:
            return known
        # Another place of the same stream shares what was made of it.
        other = OpenedStream(address, known.plan, known.vocabularies, taps)
        other._batches, other._lock = known._batches, known._lock
        return other

    def _vocabularies(self, plan: Plan) -> list[Vocabulary | None]:
        """The vocabulary of every source; one file is read once."""
        read: dict[object, Vocabulary | None] = {}
        vocabularies = []
        for prepared in plan.prepared:
            stage = tokenizing(plan.recipe.stages_of(prepared.source))
            key = None if stage is None else (str(stage.tokenizer), getattr(stage, "special_tokens", ()))
            if key not in read:
                read[key] = None if stage is None else vocabulary_of(stage)
            vocabularies.append(read[key])
        if self._tokenizer is not None:
            fallback = read_vocabulary(self._tokenizer)
            vocabularies = [fallback if vocabulary is None else vocabulary for vocabulary in vocabularies]
        return vocabularies


def open_address(address: Address, registry: Registry) -> Opened:
    """What stands at an address."""
    return Opener(registry).open(address)


def _recipe_of(directory: "RunDirectory") -> Recipe:
    """The recipe that a run reads now. One that was edited during the run is the same up to the edit, so the newest serves all steps."""
    kept = sorted((directory.path / "recipes").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    if not kept:
        raise UsageError(
            f"the run {directory.path} keeps no recipe: it has functions, which a file cannot hold",
            hint="look at it from Python, where the functions are: penstock.batch_at(recipe, step=…)",
        )
    return Recipe.load(kept[-1])


def _read(tap: Path) -> "list[Tapped]":
    from penstock.view.tap.reader import read_tap

    tapped = read_tap(tap)
    return [] if tapped is None else [tapped]


def _tap_of(folder: Path, name: str) -> Path | None:
    """The newest tap of a folder that is called so, or that a process of this number has."""
    paths = [
        path
        for path in (folder.glob("*.tap") if folder.is_dir() else ())
        if name in (path.stem, path.stem.partition("-")[0])
    ]
    return max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)


def check_place(batch: AnyBatch, place: Place) -> None:
    """Refuse a row or a token that the batch does not have."""
    if place.row is not None and place.row >= batch.rows:
        raise RowOutOfRange(row=place.row, rows=batch.rows)
    if place.token is None:
        return
    if isinstance(batch, RecordView):
        raise UsageError("a record has no tokens", hint="leave token=… out of the address")
    if place.token >= batch.length:
        raise TokenOutOfRange(token=place.token, tokens=batch.length)


def _refuse_measuring(what: str, done: int, total: int) -> None:
    raise UsageError(
        f"{what} would have to be measured first ({total:,} to do)",
        hint="`penstock data peek RECIPE` measures it once; then it can be looked at",
    )
