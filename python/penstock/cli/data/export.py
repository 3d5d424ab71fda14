"""``penstock data export``: the rows of a version in another format."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.data.version_text import version_document
from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.progress import progress
from penstock.cli.registry_place import Place, open_registry
from penstock.report.quantities import size as as_size

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
        chosen = None if fields is None else [field.strip() for field in fields.split(",")]
        version = opened.export(address, to, out, name=name, fields=chosen, watch=tell)
    if json:
        print_json(version_document(version))
    else:
        print(version.address)
        say(f"{version.rows:,} rows, {as_size(version.bytes)} in {out}")
    return 0
