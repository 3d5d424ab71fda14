"""``penstock data``: datasets, from raw files to versions and back."""

from penstock.cli.output import command_app

app = command_app(
    "data",
    "Register raw files as datasets, look at them, verify, measure and export them.",
    examples=(
        "  penstock data register web 'raw/*.jsonl.zst' --note 'first crawl'\n"
        "  penstock data list\n"
        "  penstock data rows web@1 --rows 17:20\n"
        "  penstock data verify web@1"
    ),
)

#: Command -> its purpose and where it lives; loaded when called. Held against the commands by the tests.
COMMANDS = {
    "register": (
        "Scan, index and checksum raw files where they are, and publish them as a version.",
        "register",
    ),
    "list": ("List datasets, or the versions of one.", "list"),
    "show": ("Show a version: schema, shards, places, words.", "show"),
    "rows": ("Print rows of a version.", "rows"),
    "verify": ("Read every byte of a version and report all damage with file and offset.", "verify"),
    "measure": (
        "Compute one value per row, once: token lengths under a tokenizer, with the tokens kept.",
        "measure",
    ),
    "export": ("Write the rows of a version in another format and register them, with lineage.", "export"),
    "peek": (
        "Show batches exactly as a training step receives them: after shuffling, mixing, tokenising, and packing.",
        "peek",
    ),
    "lint": (
        "Check batches for mistakes that only show late: masks, boundaries, positions, repeats, special tokens.",
        "lint",
    ),
    "bench": (
        "Measure how fast a recipe's batches come, beside what this machine's memory allows.",
        "bench",
    ),
    "serve": (
        "Serve a recipe's batches to other machines: any lane, any step, from any number of servers.",
        "serve",
    ),
    "diff": ("Compare two versions: schema, shards, rows.", "diff"),
    "tag": ("Let a name stand for a version, as in web@gold.", "tag"),
    "lineage": ("Show what a version came from and what was made from it.", "show"),
    "relocate": ("Say that the files of a version have moved.", "register"),
    "derived": ("List derived data: copies and payloads, with their sizes.", "list"),
    "migrate": ("Rewrite versions of an older form in the current one.", "tag"),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(
        f"penstock.cli.data.{_module}:{_name}_app",
        name=_name,
        help=_purpose,
        sort_key=list(COMMANDS).index(_name),
    )
