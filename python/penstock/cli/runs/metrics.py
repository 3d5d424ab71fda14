"""``penstock runs show --metrics``."""

from pathlib import Path

import msgspec

from penstock.cli.output import print_json, print_table, say
from penstock.run.metrics import read


def show_metrics(run: Path, *, json: bool) -> int:
    """What rank 0 logged in steps that count."""
    found = read(run)
    if json:
        for each in found:
            print_json(msgspec.to_builtins(each))
        return 0
    if not found:
        say(f"nothing was logged in {run}; a program logs with run.log(name=value)")
        return 0
    names = sorted({name for each in found for name in each.values})
    rows = [
        (each.step, *("" if (value := each.values.get(name)) is None else f"{value:.6g}" for name in names))
        for each in found
    ]
    print_table(["step", *names], rows, right=["step", *names])
    return 0
