"""``penstock data measure``: one value per row, computed once."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, say
from penstock.cli.progress import progress
from penstock.cli.registry_place import Place, open_registry
from penstock.report.quantities import size as as_size

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
