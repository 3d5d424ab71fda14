"""Commands that work on versions: measure, verify, tag, migrate, export."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.data.place import Place, open_registry
from penstock.cli.data.shown import version_document
from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.output import size as as_size
from penstock.cli.progress import progress

verify_app = command_app(
    "verify",
    "Read every byte of a version and report all damage with file and offset.",
    examples="  penstock data verify web@3\n  penstock data verify web@3 --json",
)


@verify_app.default
def verify_version(address: str, *, registry: Place = None, json: Json = False) -> int:
    """Exit code 0 when everything is as registered, 1 when it is not.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    version = open_registry(registry).resolve(address)
    with progress(f"verifying {version.address}", "bytes", quiet=json) as tell:
        report = version.verify(tell)
    if json:
        print_json(report.to_json())
    elif report.ok:
        say(f"{version.address} is as registered: {report.shards} shards, {as_size(report.bytes)}")
    else:
        print_table(
            ["file", "byte", "what is wrong"],
            [(d.file, d.offset, d.reason) for d in report.damages],
            right=["byte"],
        )
        say(f"{len(report.damages)} places are not as registered")
    return 0 if report.ok else 1


tag_app = command_app(
    "tag",
    "Let a name stand for a version, as in web@gold.",
    examples="  penstock data tag web@3 gold\n  penstock data rows web@gold",
)


@tag_app.default
def tag_version(address: str, name: str, *, registry: Place = None, json: Json = False) -> int:
    """Moving a tag keeps its history in the registry.

    Parameters
    ----------
    address
        Which version: web@3.
    name
        The tag: a word that is neither a number nor a digest.
    """
    version = open_registry(registry).tag(address, name)
    if json:
        print_json({"address": version.address, "tag": name})
    else:
        say(f"{version.name}@{name} is {version.address}")
    return 0


measure_app = command_app(
    "measure",
    "Compute one value per row, once: token lengths under a tokenizer, with the tokens kept.",
    examples="  penstock data measure web@3 --tokenizer tokenizer.json\n  penstock data measure web@3 --tokenizer tokenizer.json --field content --engine ray",
)


@measure_app.default
def measure_version(
    address: str,
    *,
    tokenizer: Annotated[Path, Parameter(help="A Hugging Face tokenizer.json.")],
    field: Annotated[str, Parameter(help="The field with the text.")] = "text",
    engine: Annotated[str, Parameter(help="local, or ray for a Ray cluster.")] = "local",
    derived_max: Annotated[int, Parameter(help="Bytes of tokens that may be kept.")] = 1 << 40,
    registry: Place = None,
    json: Json = False,
) -> int:
    """The second time costs nothing: the column is kept by version, tokenizer content and library version.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    from penstock.registry.tokenize.tokens import TokenLength

    opened = open_registry(registry)
    chosen = TokenLength(tokenizer, field=field)
    version = opened.resolve(address)
    say(
        f"tokens of {version.address} will take about {as_size(chosen.payload_bytes(version))} of derived data"
    )
    with progress(f"measuring {version.address}", "rows", quiet=json) as tell:
        column = opened.measure(address, chosen, engine=engine, derived_bytes_max=derived_max, watch=tell)
    values = opened.values(column)
    total = int(values.sum(dtype="uint64"))
    document = {
        "column": column.key,
        "rows": len(values),
        "tokens": total,
        "longest": int(values.max(initial=0)),
        "tokens_version": column.payload_version,
    }
    if json:
        print_json(document)
    else:
        print_facts(
            {key.replace("_", " "): f"{v:,}" if isinstance(v, int) else v for key, v in document.items()}
        )
    return 0


migrate_app = command_app(
    "migrate",
    "Rewrite versions of an older form in the current one.",
    examples="  penstock data migrate\n  penstock data migrate web@1",
)


@migrate_app.default
def migrate_versions(address: str | None = None, *, registry: Place = None, json: Json = False) -> int:
    """Older forms are read for ever; this publishes them anew, with lineage.

    Parameters
    ----------
    address
        Which version; without one, the newest of every dataset.
    """
    opened = open_registry(registry)
    done = [opened.migrate(each) for each in ([address] if address is not None else opened.datasets())]
    if json:
        print_json(
            [
                {
                    "before": m.before,
                    "after": m.after,
                    "form_before": m.form_before,
                    "form_after": m.form_after,
                }
                for m in done
            ]
        )
    else:
        rows = [(m.before, m.form_before, m.after if m.after != m.before else "is current") for m in done]
        print_table(["version", "form", "now"], rows)
    return 0


export_app = command_app(
    "export",
    "Write the rows of a version in another format and register them, with lineage.",
    examples="  penstock data export web@3 --to parquet --out exported/\n  penstock data export tokens@1 --to bin-idx --out megatron/ --name tokens-megatron",
)


@export_app.default
def export_version(
    address: str,
    *,
    to: Annotated[str, Parameter(help="parquet, jsonl.zst, mds, webdataset or bin-idx.")],
    out: Annotated[Path, Parameter(help="A new folder for the files.")],
    name: Annotated[str | None, Parameter(help="Dataset of the result (default: NAME-FORMAT).")] = None,
    fields: Annotated[
        str | None, Parameter(help="Write only these, as tokens,mode (default: all, or an error).")
    ] = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """The exported rows are equal to the version's, and the result's lineage names it.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    opened = open_registry(registry)
    with progress(f"exporting {address}", "rows", quiet=json) as tell:
        chosen = None if fields is None else [each.strip() for each in fields.split(",")]
        made = opened.export(address, to, out, name=name, fields=chosen, watch=tell)
    if json:
        print_json(version_document(made))
    else:
        print(made.address)
        say(f"{made.rows:,} rows, {as_size(made.bytes)} in {out}")
    return 0
