"""``penstock checkpoint prune``: retire what nobody wishes to keep."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.checkpoint.place import open_checkpoints, refuse_empty
from penstock.cli.output import Json, command_app, print_facts, print_json, say
from penstock.report.quantities import size as as_size
from penstock.state import Keep

prune_app = command_app(
    "prune",
    "Retire checkpoints that nobody wishes to keep, and delete what nothing refers to.",
    examples=(
        "  penstock checkpoint prune runs/7b --keep-last 3 --dry-run\n"
        "  penstock checkpoint prune runs/7b --keep-last 3 --keep-every 10000"
    ),
)


@prune_app.default
def prune_checkpoints(
    place: str,
    *,
    keep_last: Annotated[int, Parameter(help="How many of the newest good checkpoints to keep.")],
    keep_every: Annotated[
        int | None, Parameter(help="Also keep the first checkpoint of every N steps.")
    ] = None,
    dry_run: Annotated[
        bool, Parameter(negative=(), help="Say what would be deleted, and change nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Safe beside a run that saves. The newest good checkpoint and pinned ones always stay.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    """
    keep = Keep(last=keep_last, every=keep_every)
    with open_checkpoints(place, write=not dry_run) as opened:
        refuse_empty(opened)
        done = opened.prune(keep, dry_run=dry_run)
        kept = [
            checkpoint.step
            for checkpoint in opened.list()
            if not (dry_run and checkpoint.step in done.retired)
        ]
    document = {
        "dry_run": dry_run,
        "retired": list(done.retired),
        "kept": kept,
        "damaged": {str(step): reason for step, reason in done.damaged.items()},
        "files": len(done.files),
        "bytes": done.bytes,
    }
    if json:
        print_json(document)
        return 0
    would = "would go" if dry_run else "retired"
    print_facts(
        {
            would: ", ".join(map(str, done.retired)) or "nothing",
            "kept": ", ".join(map(str, kept)),
            "files": f"{len(done.files):,}, {as_size(done.bytes)}",
        }
    )
    for step, reason in done.damaged.items():
        say(f"step {step} is damaged: {reason}")
    return 0
