"""``penstock doctor``: is this machine fit for training?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.observe.doctor import examine

app = command_app(
    "doctor",
    "Examine this machine: what is installed, limits, accelerators, disk.",
    examples="  penstock doctor\n  penstock doctor --directory /data --json",
)


@app.default
def doctor(
    *,
    directory: Annotated[Path | None, Parameter(help="Where data and checkpoints will live.")] = None,
    json: Json = False,
) -> int:
    """Look at everything once, print a verdict per line; exit 1 when something fails."""
    checks = examine(directory)
    if json:
        print_json([check.to_json() for check in checks])
    else:
        print_table(
            ["", "what", "found", "what to do"], [(c.verdict, c.name, c.value, c.hint) for c in checks]
        )
    failed = [check.name for check in checks if check.verdict == "fail"]
    if failed:
        say(f"not fit: {', '.join(failed)}")
    return 1 if failed else 0
