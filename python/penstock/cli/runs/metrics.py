"""``penstock runs show --metrics``."""

from pathlib import Path

import msgspec

from penstock.cli.output import print_json, print_table, say
from penstock.run.journal.metrics import ranks_of, read


def show_metrics(run: Path, *, json: bool) -> int:
    """What ranks logged in steps that count; which rank it was stands there where it was not rank 0 alone."""
    ranks = ranks_of(run)
    entries = sorted((entry for rank in ranks for entry in read(run, rank)), key=lambda entry: entry.step)
    if json:
        for logged in entries:
            print_json(msgspec.to_builtins(logged))
        return 0
    if not entries:
        say(f"nothing was logged in {run}; a program logs with run.log(name=value)")
        return 0
    names = sorted({name for entry in entries for name in entry.values})
    several = ranks != [0]
    rows = [
        (
            entry.step,
            *([entry.rank] if several else []),
            *("" if (value := entry.values.get(name)) is None else f"{value:.6g}" for name in names),
        )
        for entry in entries
    ]
    heads = ["step", *(["rank"] if several else []), *names]
    print_table(heads, rows, right=heads)
    return 0
