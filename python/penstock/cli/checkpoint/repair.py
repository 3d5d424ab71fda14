"""The command that repairs a place."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.checkpoint.place import place_of
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.state.log.repair import PATIENCE_S, repair
from penstock.store import open_store

repair_app = command_app(
    "repair",
    "Give the log and the manifests of a place both of their copies again, and rebuild what is lost.",
    examples=(
        "  penstock checkpoint repair runs/7b --dry-run\n"
        "  penstock checkpoint repair s3://bucket/runs/7b --json"
    ),
)


@repair_app.default
def repair_place(
    place: str,
    *,
    dry_run: Annotated[
        bool, Parameter(negative=(), help="Say what would be done, and change nothing.")
    ] = False,
    wait_s: Annotated[
        float, Parameter(help="Seconds to wait for a sign of a run that is at work.")
    ] = PATIENCE_S,
    json: Json = False,
) -> int:
    """Exit code 0 when the place is whole now; with --dry-run 1 when there is something to do.

    Refused beside a run that is at work. Records that were lost in both copies are rebuilt under a new incarnation: a run that was away
    cannot commit after that. Tensors are not read: `verify` does that.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    """
    store = open_store(place_of(place))
    done = repair(store, dry_run=dry_run, patience_s=wait_s)
    if json:
        print_json({"dry_run": dry_run, **done.to_json()})
    elif not done.nothing:
        rows = [(f"log/{entry.number:08d}.json", entry.reason, entry.what) for entry in done.rebuilt]
        rows += [(mend.name, mend.what, "copied") for mend in done.mends]
        rows += [("log", "it is gone", str(number)) for number in done.appended]
        print_table(["file", "what is wrong", "becomes" if dry_run else "became"], rows)
    if done.nothing:
        say(f"{store.url} needs no repair")
        return 0
    if dry_run:
        say("nothing was changed")
        return 1
    began = "" if done.incarnation is None else f"; incarnation {done.incarnation} began"
    say(f"{len(done.rebuilt) + len(done.appended)} records rebuilt, {len(done.mends)} files mended{began}")
    return 0
