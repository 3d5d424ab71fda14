"""``penstock view``: look at a version, a batch of a recipe or of a run; in the terminal, as plain lines, as JSON or as a page."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.registry_place import Place, open_registry
from penstock.errors import RunUnknown, UsageError
from penstock.view.address import (
    IN_URL,
    RECIPES,
    RUN,
    Address,
    RecipeAddress,
    RunAddress,
    VersionAddress,
    at,
    parse,
)
from penstock.view.bounds import parse_bounds

if TYPE_CHECKING:
    from penstock.data.plan.samples import PlanWatch
    from penstock.view.model.tokens.batch import BatchView
    from penstock.view.opener import AnyBatch, Opened, OpenedStream, Opener, OwnRegistry
    from penstock.view.wire.batch_answers import SampleStagesAnswer

#: Where the views of the terminal are, once they are installed.
TERMINAL = "penstock.view.terminal"
#: Tokens that are shown from the address's token on, and rows of a version in JSON, unless others are asked for.
_TOKENS_AFTER, _ROWS_OF_JSON = 64, 64

app = command_app(
    "view",
    "Look at data as the model sees it: versions and rows, and the batch of any step of a recipe or a run.",
    examples=(
        "  penstock view web@3/row/17\n"
        "  penstock view recipe.toml#step=41207,lane=3/8,row=5\n"
        "  penstock view run:runs/exp1#step=120 --json | jq .digest\n"
        "  penstock view recipe.toml#step=7 --rows 0:4 --export batch.html --redact\n"
        "  penstock view web@3 --filter \"lang == 'ja'\" --all\n"
        "  penstock view recipe.toml#step=7 recipe.toml#step=8        what differs"
    ),
)


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """What of it is shown, and how."""

    steps: Annotated[str | None, Parameter(help="Of a recipe or a run: steps, as A:B.")] = None
    rows: Annotated[
        str | None,
        Parameter(
            help="Rows, as A:B. With --filter: look from row A on, until B - A rows pass; with --all: look at rows A to B."
        ),
    ] = None
    tokens: Annotated[str | None, Parameter(help="Tokens of each row, as A:B.")] = None
    ids: Annotated[bool, Parameter(negative=(), help="Print the numbers of tokens too.")] = False
    exact: Annotated[
        bool,
        Parameter(
            name="--bytes",
            negative=(),
            help="Show the exact bytes of a character that several tokens share, not the character.",
        ),
    ] = False
    text: Annotated[
        bool, Parameter(negative=(), help="Plain lines, on a terminal too. What a pipe gets anyway.")
    ] = False
    stages: Annotated[
        bool,
        Parameter(
            negative=(), help="Of a token: its sample as registered, as text, as tokens, and in the input."
        ),
    ] = False
    lanes: Annotated[
        int | None, Parameter(help="Of a step: which rows each of N lanes has, and what is there twice.")
    ] = None
    tap: Annotated[
        str | None,
        Parameter(help="Of a running run: what its training loop shows under this name (penstock.tap)."),
    ] = None
    filter: Annotated[
        str | None, Parameter(help="Of a version: only rows for which this holds, such as \"lang == 'en'\".")
    ] = None
    all: Annotated[
        bool, Parameter(negative=(), help="With --filter: look at every row, and show every row that passes.")
    ] = False
    export: Annotated[
        Path | None, Parameter(help="Write one page of HTML that opens offline, instead of printing.")
    ] = None
    redact: Annotated[bool, Parameter(negative=(), help="In the exported page, lengths instead of text.")] = (
        False
    )
    tokenizer: Annotated[
        Path | None, Parameter(help="The tokenizer of sources whose tokens nothing in the recipe explains.")
    ] = None

    def check(self) -> None:
        """Refuse options that make no sense together."""
        if self.redact and self.export is None:
            raise UsageError(
                "--redact goes with --export", hint="penstock view ADDRESS --export FILE --redact"
            )
        if self.all and self.filter is None:
            raise UsageError("--all goes with --filter", hint="penstock view web@3 --filter EXPRESSION --all")
        if self.steps is not None and self.export is not None:
            raise UsageError("one page shows one step", hint="leave --steps out and name the step: #step=7")

    def rows_of(self, count: int, chosen: int | None = None) -> tuple[int, int] | None:
        """The rows that were asked for, the one that the address names, or None."""
        if self.rows is not None:
            return parse_bounds(self.rows).within(count)
        return None if chosen is None else (chosen, chosen + 1)

    def tokens_of(self, count: int, chosen: int | None = None) -> tuple[int, int] | None:
        """The tokens that were asked for, some from where the address points on, or None."""
        if self.tokens is not None:
            return parse_bounds(self.tokens, of="tokens").within(count)
        return None if chosen is None else (chosen, chosen + _TOKENS_AFTER)


@app.default
def view(
    address: str | None = None,
    other: str | None = None,
    *,
    shown: Annotated[ViewOptions | None, Parameter(name="*")] = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Rebuild what stands at an address and show it; nothing needs to be running, and nothing is changed.

    Parameters
    ----------
    address
        web@3, web@3/row/17, recipe.toml#step=7,lane=3/8,row=5,token=120, run:DIR#step=7, or a URL of the browser view;
        also the directory of a run, or a name below runs/. Without one, a terminal lists the datasets.
    other
        A second address: what differs is shown.
    """
    chosen = shown or ViewOptions()
    chosen.check()
    one = None if address is None else _parsed(address, registry)

    def opening(watch: "PlanWatch | None" = None) -> "Opener":
        from penstock.view.opener import Opener

        runs = (Path("runs"), _home() / "runs")
        place = open_registry(registry, recipe=one.path if isinstance(one, RecipeAddress) else None)
        own: OwnRegistry = "open" if registry is None else "ignore"
        taps, tokenizer = _home() / "taps", chosen.tokenizer
        return Opener(place, runs=runs, taps=taps, tokenizer=tokenizer, watch=watch, own=own)

    if other is None and not json and chosen.export is None and _has_terminal(chosen):
        code: int = importlib.import_module(TERMINAL).run(one, opening)
        return code
    if one is None:
        raise UsageError("an address is needed", hint="on a terminal, `penstock view` lists the datasets")
    opener = opening()
    if other is not None:
        return _show_difference(opener, one, _parsed(other, registry), chosen, json=json)
    for step_address in _steps(one, chosen):
        opened = opener.open(step_address)
        if chosen.export is not None:
            return _write(chosen.export, _page(opened, chosen))
        if json:
            for document in _documents(opened, chosen):
                print_json(document)
        else:
            for line in _lines(opened, chosen):
                print(line)
    return 0


def _parsed(text: str, registry: Place) -> Address:
    """An address. The directory of a run and a name below ``runs/`` are that run, unless a dataset is called like it."""
    path, hash_, place = text.partition("#")
    is_written_out = text.startswith((RUN, IN_URL, "http://", "https://")) or "@" in path
    is_folder = any(folder.is_dir() for folder in (Path(path), Path("runs") / path))
    if is_written_out or path.endswith(RECIPES) or not is_folder:
        return parse(text)
    from penstock.cli.runs.place import run_at

    try:
        run_at(path)
    except RunUnknown:
        return parse(text)
    if not hash_ and path in open_registry(registry).datasets():
        say(f"note: {path} is a dataset, and a run too; {RUN}{path} is the run")
        return parse(text)
    return parse(f"{RunAddress(path)}{hash_}{place}")


def _steps(address: Address, shown: ViewOptions) -> Iterator[Address]:
    """The address, at each of the steps that were asked for."""
    if shown.steps is None:
        yield address
    elif isinstance(address, VersionAddress):
        raise UsageError(f"{address} is a version, and only recipes and runs have steps", hint="use --rows")
    else:
        for step in parse_bounds(shown.steps, of="steps").endless():
            yield at(address, step=step)


def _home() -> Path:
    from penstock.store.home import penstock_home

    return penstock_home()


def _has_terminal(shown: ViewOptions) -> bool:
    asked = (
        shown.text
        or shown.ids
        or shown.exact
        or shown.steps is not None
        or shown.stages
        or shown.lanes is not None
        or shown.tap is not None
        or shown.filter is not None
    )
    if asked or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return importlib.util.find_spec(TERMINAL) is not None and importlib.util.find_spec("textual") is not None


def _batch(opened: "OpenedStream", shown: ViewOptions) -> "tuple[AnyBatch, Any, Any]":
    from penstock.view.model.tokens.batch import BatchView
    from penstock.view.opener import check_place

    place = opened.address.place
    batch = opened.batch() if shown.tap is None else _tapped(opened, shown.tap)
    check_place(batch, place)
    tokens = shown.tokens_of(batch.length, place.token) if isinstance(batch, BatchView) else None
    return batch, shown.rows_of(batch.rows, place.row), tokens


def _tapped(opened: "OpenedStream", name: str) -> "BatchView":
    """What a training loop showed last under a name."""
    from penstock.run.directory import RunDirectory
    from penstock.view.tap import read_ring, rings_in, shown_view

    if not isinstance(opened.address, RunAddress):
        raise UsageError("--tap goes with a run", hint="penstock view run:NAME --tap NAME")
    rings = rings_in(RunDirectory(opened.address.run).taps)
    chosen = [path for stem, path in rings.items() if stem == name or stem.rpartition("-")[0] == name]
    if not chosen:
        hint = (
            f"it shows {', '.join(sorted(rings))}"
            if rings
            else "its training loop calls penstock.tap(name, arrays)"
        )
        raise UsageError(f"the run shows nothing under the name {name!r}", hint=hint)
    entries, left = read_ring(chosen[-1])
    if not entries:
        raise UsageError(f"the run has shown nothing under the name {name!r} yet")
    say(f"{chosen[-1].stem}: entry {entries[-1].number}, {left:,} calls left out by the budget")
    vocabulary = next((candidate for candidate in opened.vocabularies if candidate is not None), None)
    return shown_view(entries[-1], name, opened.address.run, vocabulary)


def _stages(opened: "OpenedStream") -> "SampleStagesAnswer":
    """The sample of the token that the address names, in its four stages."""
    from penstock.view.model.tokens.batch import BatchView
    from penstock.view.model.tokens.samples import Samples
    from penstock.view.opener import check_place

    batch, place = opened.batch(), opened.address.place
    if not isinstance(batch, BatchView):
        raise UsageError("records have no tokens, so they have no stages before the input")
    check_place(batch, place)
    return Samples(opened.plan, opened.vocabularies).stages(batch, place.row or 0, place.token or 0)


def _live_lines(opened: "OpenedStream") -> Iterator[str]:
    """What those who read it now have in their hands, compared with what is rebuilt here."""
    from penstock.view.tap import compare_taps

    comparison = compare_taps(opened, opened.live())
    for rank in comparison["ranks"]:
        verdict = "as rebuilt here" if rank["equal"] else f"OTHER BITS than rebuilt here ({rank['rebuilt']})"
        yield f"live: rank {rank['name']} (pid {rank['pid']}), lane {rank['lane']}, step {rank['step']}, {verdict}"
    for lane in comparison["unequal"]:
        yield f"live: ranks of lane {lane['lane']} differ at step {lane['step']}: {lane['ranks']}"


def _lines(opened: "Opened", shown: ViewOptions) -> Iterator[str]:
    from penstock.view import text
    from penstock.view.model.tokens.batch import BatchView
    from penstock.view.opener import OpenedVersion

    if isinstance(opened, OpenedVersion):
        if opened.chosen_row is not None:
            yield from text.row_lines(opened.row(opened.chosen_row))
        elif shown.filter is not None:
            from penstock.cli.filtered_rows import filtered_lines

            yield from filtered_lines(opened, shown.filter, shown.rows, everything=shown.all)
        else:
            yield from text.version_lines(opened, shown.rows_of(opened.rows))
    elif shown.lanes is not None:
        yield from _lens_lines(opened, shown.lanes)
    elif shown.stages:
        yield from text.stage_lines(_stages(opened), exact=shown.exact)
    else:
        if isinstance(opened.address, RunAddress) and opened.address.place.step is None:
            yield from _live_lines(opened)
        batch, rows, tokens = _batch(opened, shown)
        if isinstance(batch, BatchView):
            yield from text.batch_lines(batch, rows, tokens, ids=shown.ids, exact=shown.exact)
        else:
            yield from text.record_lines(batch, rows)


def _documents(opened: "Opened", shown: ViewOptions) -> Iterator[Any]:
    from penstock.view import text
    from penstock.view.model.tokens.batch import BatchView
    from penstock.view.opener import OpenedVersion

    if isinstance(opened, OpenedVersion):
        if opened.chosen_row is not None:
            yield opened.row(opened.chosen_row).to_json()
            return
        if shown.filter is not None:
            from penstock.cli.filtered_rows import filtered_document

            yield filtered_document(opened, shown.filter, shown.rows, everything=shown.all)
            return
        first, stop = shown.rows_of(opened.rows) or (0, min(_ROWS_OF_JSON, opened.rows))
        rows = [row.to_json() for row in opened.page(first, stop - first)] if first < stop else []
        yield {**opened.facts(), "rows_shown": rows}
    elif shown.lanes is not None:
        from penstock.view.model.tokens.lanes import rank_lens

        yield rank_lens(opened, opened.step, shown.lanes)
    elif shown.stages:
        yield _stages(opened)
    else:
        batch, rows_wanted, tokens = _batch(opened, shown)
        if isinstance(batch, BatchView):
            yield text.batch_document(batch, rows_wanted, tokens)
        else:
            first, stop = rows_wanted or (0, batch.rows)
            yield {**batch.facts(), "rows_shown": batch.window(first, stop)}


def _lens_lines(opened: "OpenedStream", lanes: int) -> Iterator[str]:
    from penstock.view.model.tokens.lanes import rank_lens

    lens = rank_lens(opened, opened.step, lanes)
    yield f"step {lens['step']}, {lanes} lanes, digest {lens['digest']}"
    for lane in lens["lanes"]:
        samples = sum(len(row) for row in lane["rows"])
        yield f"  lane {lane['lane']}: {len(lane['rows'])} rows, {samples} documents, digest {lane['digest']}"
    for repeat in lens["repeats"]:
        yield f"  twice: {repeat['source']} row {repeat['sample']}, {repeat['tokens']} tokens: {' and '.join(repeat['places'])}"
    if lens["repeats_total"] > len(lens["repeats"]):
        yield f"  and {lens['repeats_total'] - len(lens['repeats'])} more"


def _page(opened: "Opened", shown: ViewOptions) -> str:
    from penstock.view import export
    from penstock.view.model.tokens.batch import BatchView
    from penstock.view.opener import OpenedVersion

    if isinstance(opened, OpenedVersion):
        rows = shown.rows_of(opened.rows, opened.chosen_row)
        return export.version_page(opened, rows, redact=shown.redact)
    if shown.stages:
        stages = _stages(opened)
        return export.stage_page(str(opened.address), stages, redact=shown.redact, exact=shown.exact)
    batch, rows, tokens = _batch(opened, shown)
    if isinstance(batch, BatchView):
        return export.batch_page(batch, rows, tokens, redact=shown.redact, exact=shown.exact)
    return export.record_page(batch, rows, redact=shown.redact)


def _show_difference(
    opener: "Opener", one: Address, other: Address, shown: ViewOptions, *, json: bool
) -> int:
    from penstock.view.export import difference_page
    from penstock.view.model.difference import compare_batches, compare_streams, compare_versions
    from penstock.view.opener import OpenedVersion
    from penstock.view.text import difference_lines

    sides = [opener.open(address) for address in (one, other)]
    if isinstance(sides[0], OpenedVersion) and isinstance(sides[1], OpenedVersion):
        comparison = compare_versions(sides[0], sides[1])
    elif isinstance(sides[0], OpenedVersion) or isinstance(sides[1], OpenedVersion):
        raise UsageError("a version and a stream of batches have nothing that can be compared")
    elif all(side.address.place.step is not None for side in sides if not isinstance(side, OpenedVersion)):
        comparison = compare_batches(sides[0].batch(), sides[1].batch())
    else:
        comparison = compare_streams(sides[0], sides[1])
    if shown.export is not None:
        return _write(shown.export, difference_page(list(difference_lines(comparison)), redact=shown.redact))
    if json:
        print_json(comparison)
    else:
        for line in difference_lines(comparison):
            print(line)
    return 0 if comparison["equal"] else 1


def _write(path: Path, page: str) -> int:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as reason:
        raise UsageError(f"cannot write {path}: {reason.strerror}") from reason
    say(f"wrote {path}, {len(page.encode()):,} bytes")
    return 0
