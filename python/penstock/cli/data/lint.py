"""``penstock data lint``: mistakes that data makes late, each with the address that shows it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.escape import harmless
from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.registry_place import Place, open_registry
from penstock.errors import UsageError
from penstock.view.address import Address, RecipeAddress, RunAddress, at, parse
from penstock.view.bounds import parse_bounds

if TYPE_CHECKING:
    from penstock.view.opener import OpenedStream

lint_app = command_app(
    "lint",
    "Check batches for mistakes that only show late: masks, boundaries, positions, repeats, special tokens.",
    examples=(
        "  penstock data lint recipe.toml\n"
        "  penstock data lint recipe.toml --steps 5000:5100 --lane 0/8\n"
        "  penstock data lint recipe.toml --against gsm8k-test@1 --strict\n"
        "  penstock data lint run:runs/exp1 --allow truncated --json | jq .findings"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is expected of the data, and where the report goes."""

    export: Annotated[Path | None, Parameter(help="Write the report as one page of HTML too.")] = None
    tokenizer: Annotated[
        Path | None, Parameter(help="The tokenizer of sources whose tokens nothing in the recipe explains.")
    ] = None
    bos: Annotated[str | None, Parameter(help="The token that begins documents, by number or name.")] = None
    eos: Annotated[str | None, Parameter(help="The token that ends documents, by number or name.")] = None
    pad: Annotated[str | None, Parameter(help="The token that pads rows, by number or name.")] = None
    max_truncated: Annotated[float, Parameter(help="Share of documents that may be cut short.")] = 0.05
    max_dominance: Annotated[
        float, Parameter(help="How far a source's share of the loss may pass its weight.")
    ] = 0.25
    against: Annotated[
        str | None, Parameter(help="A version that must not be learned, such as a test set.")
    ] = None
    strict: Annotated[bool, Parameter(negative=(), help="Exit with 1 for warnings too.")] = False


@lint_app.default
def lint(
    recipe: str,
    *,
    steps: Annotated[str, Parameter(help="Steps to look at, as A:B, or one number.")] = "0:20",
    lane: Annotated[str | None, Parameter(help="Only what lane K of N receives, as K/N.")] = None,
    allow: Annotated[
        tuple[str, ...], Parameter(help="A kind that is not a mistake here; may be repeated.")
    ] = (),
    limits: Annotated[Limits | None, Parameter(name="*")] = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Rebuild the batches of some steps and check them. Exits with 1 when there is an error among the findings.

    Parameters
    ----------
    recipe
        A recipe file, or a run as run:NAME.
    """
    from penstock.data.feed.lane import parse_lane
    from penstock.view.lint import Expected, lint_stream, texts_of
    from penstock.view.opener import OpenedStream, Opener

    chosen = limits or Limits()
    address = _stream(recipe)
    if lane is not None:
        address = at(address, lane=parse_lane(lane))
    place = open_registry(registry, recipe=address.path if isinstance(address, RecipeAddress) else None)
    opener = Opener(place, tokenizer=chosen.tokenizer, own="open" if registry is None else "ignore")
    stream = opener.open(address)
    assert isinstance(stream, OpenedStream)
    expected = Expected(
        bos=_token(chosen.bos, stream),
        eos=_token(chosen.eos, stream),
        pad=_token(chosen.pad, stream),
        truncated_max=chosen.max_truncated,
        dominance_max=chosen.max_dominance,
        against=() if chosen.against is None else texts_of(stream.plan.registry.resolve(chosen.against)),
    )
    report = lint_stream(stream, parse_bounds(steps, of="steps").endless(), expected, allow=allow)
    if chosen.export is not None:
        from penstock.view.export import lint_page

        chosen.export.write_text(lint_page(str(address), report), encoding="utf-8")
    if json:
        print_json(report.to_json())
    else:
        for finding in report.findings:
            print(harmless(f"{finding.severity}: {finding.kind}: {finding.sentence}"))
            print(f"  costs {finding.cost:.1%} of {finding.unit}; penstock view {finding.address}")
            if finding.hint:
                print(harmless(f"  hint: {finding.hint}"))
        for note in report.notes:
            say(f"note: {note}")
        summary = f"{len(report.findings)} findings" if report.findings else "nothing to complain of"
        say(f"{summary} in {report.batches:,} batches, {report.rows:,} rows, {report.tokens:,} tokens")
    return 1 if report.errors or (chosen.strict and report.findings) else 0


def _token(token: str | None, stream: "OpenedStream") -> int | None:
    """The number of a token that was given by number or by name."""
    if token is None or token.isdecimal():
        return None if token is None else int(token)
    for vocabulary in stream.vocabularies:
        for number, name in () if vocabulary is None else vocabulary.added.items():
            if name == token:
                return number
    raise UsageError(
        f"no tokenizer of the recipe has a token {token!r}", hint="give its number, or --tokenizer"
    )


def _stream(text: str) -> RunAddress | RecipeAddress:
    address: Address = parse(text)
    if isinstance(address, RunAddress | RecipeAddress):
        return address
    raise UsageError(
        f"{text} is a version, and lint looks at batches", hint="give a recipe's file, or run:NAME"
    )
