"""``penstock data register`` and ``relocate``: where the files of a version are."""

from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.data.version_text import version_document
from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.progress import progress
from penstock.cli.registry_place import Place, open_registry
from penstock.errors import UsageError
from penstock.formats.contract import Policy
from penstock.registry import About, Version
from penstock.registry.scan.scan import ScanProgress
from penstock.registry.selection.account import Account
from penstock.report.quantities import size as as_size

register_app = command_app(
    "register",
    "Scan, index and checksum raw files where they are, and publish them as a version.",
    examples=(
        "  penstock data register web 'raw/*.jsonl.zst'\n"
        "  penstock data register photos s3://bucket/photos --format webdataset --licence CC-BY-4.0\n"
        "  penstock data register web raw/ --skip-bad 100 --engine ray\n"
        "  penstock data register chat snapshot/ --split train --strict"
    ),
)


@Parameter(name="*")
class Reading:
    """How files are to be read that do not say it themselves."""

    def __init__(
        self,
        *,
        per: Annotated[
            str, Parameter(help="line or file: what a row of a text is. Markdown is per file.")
        ] = "",
        nan: Annotated[str, Parameter(help="NaN in JSON: error, float or null.")] = "error",
        delimiter: Annotated[
            str, Parameter(help="The character between fields, instead of guessing it.")
        ] = "",
        dtype: Annotated[str, Parameter(help="Type of the tokens of a flat file: uint16.")] = "",
        eot: Annotated[
            int | None, Parameter(help="Token at which a flat file is cut into documents.")
        ] = None,
    ) -> None:
        self.chosen: dict[str, Any] = {
            "per": per,
            "nan": nan,
            "delimiter": delimiter,
            "dtype": dtype,
            "eot": eot,
        }


@Parameter(name="*")
class Rules:
    """What to do with what breaks its contract."""

    def __init__(
        self,
        *,
        skip_bad: Annotated[
            int, Parameter(help="How many bad rows per shard may be left out; they are listed.")
        ] = 0,
        mixed: Annotated[
            bool, Parameter(negative=(), help="Let a field hold values of different kinds.")
        ] = False,
        row_bytes_max: Annotated[int, Parameter(help="A row of more bytes is bad.")] = 64 << 20,
        derived_max: Annotated[int, Parameter(help="Bytes of derived copies that may be made.")] = 1 << 40,
        strict: Annotated[
            bool, Parameter(negative=(), help="Fail if any file that was found would be left out.")
        ] = False,
        split: Annotated[
            str | None,
            Parameter(help="Which split of a folder to take; 'all' takes all, with a field 'split'."),
        ] = None,
        reading: Reading | None = None,
    ) -> None:
        self.policy = Policy(
            skip_bad=skip_bad,
            mixed=mixed,
            row_bytes_max=row_bytes_max,
            derived_bytes_max=derived_max,
            strict=strict,
            split=split,
            **(reading or Reading()).chosen,
        )


@Parameter(name="*")
class VersionWords:
    """What people say about the version."""

    def __init__(
        self,
        *,
        note: Annotated[str, Parameter(help="What this version holds, in your words.")] = "",
        owner: Annotated[str, Parameter(help="Who answers for it.")] = "",
        licence: Annotated[str, Parameter(help="Under which licence it may be used.")] = "",
        derived_from: Annotated[tuple[str, ...], Parameter(help="Versions that it was made from.")] = (),
    ) -> None:
        self.note = note
        self.owner = owner
        self.licence = licence
        self.derived_from = derived_from


@register_app.default
def register_files(
    name: str,
    *files: str,
    format: Annotated[str | None, Parameter(help="The format, instead of recognising it by content.")] = None,  # noqa: A002
    engine: Annotated[str, Parameter(help="local, or ray for a Ray cluster.")] = "local",
    rules: Rules | None = None,
    words: VersionWords | None = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Register files; the same bytes again give the same version.

    Parameters
    ----------
    name
        The dataset. Letters, digits, '.', '_', '-', and '/' between parts.
    files
        Paths, quoted patterns, folders or URLs (s3://, gs://, az://, https://).
    """
    if not files:
        raise UsageError("no files were named", hint="penstock data register NAME FILES…; patterns in quotes")
    opened = open_registry(registry)
    said = words or VersionWords()
    parents = tuple(opened.resolve(address).digest for address in said.derived_from)
    about = About(note=said.note, owner=said.owner, licence=said.licence, derived_from=parents)
    with progress(f"registering {name}", "bytes", quiet=json) as tell:

        def watch(now: ScanProgress) -> None:
            tell(now.bytes_done, now.bytes, f"{now.rows_done:,} rows, {now.shards_done}/{now.shards} shards")

        policy = (rules or Rules()).policy
        version = opened.register(
            name, files, format=format, policy=policy, about=about, engine=engine, watch=watch
        )
    assert version.account is not None, "it was registered by this very call"
    if json:
        print_json({**version_document(version), "account": version.account.to_json()})
        return 0
    print(version.address)
    _say_account(version, version.account)
    return 0


def _say_account(version: Version, account: Account) -> None:
    shards = len(version.manifest.shards)
    say(
        f"{version.rows:,} rows, {as_size(version.bytes)} in {shards} shards of {version.manifest.format}, {version.digest}"
    )
    say(f"files: {account.files:,} taken, {len(account.left_out):,} left out")
    for line in account.lines():
        say(line)
    for bad in version.manifest.skipped[:10]:
        say(f"left out: {bad.shard}, row {bad.line} (byte {bad.offset}): {bad.reason}")
    if len(version.manifest.skipped) > 10:
        say(
            f"left out in all: {len(version.manifest.skipped)} (penstock data show {version.address} --json lists them)"
        )


relocate_app = command_app(
    "relocate",
    "Say that the files of a version have moved.",
    examples="  penstock data relocate web@3 --root s3://old-bucket=s3://new-bucket\n  penstock data relocate web@3 --root raw=moved/raw",
)


@relocate_app.default
def relocate_version(
    address: str,
    *,
    root: Annotated[
        list[str], Parameter(help="OLD=NEW; may be given several times.", consume_multiple=False)
    ],
    registry: Place = None,
    json: Json = False,
) -> int:
    """The version stays what it is; only where its bytes are found changes.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    moves = {}
    for mapping in root:
        old, equals, new = mapping.partition("=")
        if not (old and equals and new):
            raise UsageError(f"{mapping!r} is not of the form OLD=NEW")
        moves[old] = new
    opened = open_registry(registry)
    version = opened.relocate(address, moves)
    if json:
        print_json(version_document(version))
    else:
        print("\n".join(version.roots))
    return 0
