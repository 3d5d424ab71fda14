"""``penstock runs show --metrics``."""

from pathlib import Path

import msgspec

from penstock.cli.output import print_json, print_table, say
from penstock.run.journal.metrics import ranks_of, read


def show_metrics(run: Path, *, json: bool) -> int:
    """What ranks logged in steps that count; which rank it was stands there where it was not rank 0 alone."""
    ranks = ranks_of(run)
    found = sorted((each for rank in ranks for each in read(run, rank)), key=lambda each: each.step)
    if json:
        for each in found:
            print_json(msgspec.to_builtins(each))
        return 0
    if not found:
        say(f"nothing was logged in {run}; a program logs with run.log(name=value)")
        return 0
    names = sorted({name for each in found for name in each.values})
    several = ranks != [0]
    rows = [
        (
            each.step,
            *([each.rank] if several else []),
            *("" if (value := each.values.get(name)) is None else f"{value:.6g}" for name in names),
        )
        for each in found
    ]
    heads = ["step", *(["rank"] if several else []), *names]
    print_table(heads, rows, right=heads)
    return 0
