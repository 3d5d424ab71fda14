"""``penstock checkpoint list``: the checkpoints of a place."""

from penstock.cli.checkpoint.checkpoint_text import list_document, when
from penstock.cli.checkpoint.place import open_checkpoints, refuse_empty
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.report.quantities import size as as_size
from penstock.state.log.history import History

list_app = command_app(
    "list",
    "List the checkpoints of a place: steps, sizes, what was new in each, damage, pins.",
    examples="  penstock checkpoint list runs/7b\n  penstock checkpoint list s3://bucket/runs/7b --json | jq .step",
)


@list_app.default
def list_checkpoints(place: str, *, json: Json = False) -> int:
    """In the order in which they were committed; the last good one is what a run resumes from.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    """
    with open_checkpoints(place) as opened:
        refuse_empty(opened)
        documents = [list_document(committed, opened.store) for committed in opened.log.read().checkpoints()]
        history = opened.log.read()
    # One that was retired while its manifest was read is not damaged, it is gone.
    documents = [document for document in documents if document["number"] in history.living]
    _say_lost(history)
    if json:
        for document in documents:
            print_json(document)
        return 0
    rows = [
        (
            document["step"],
            document["number"],
            document["incarnation"],
            when(document["made"]),
            as_size(document["bytes"]),
            "" if document["files"] is None else document["files"],
            "" if document["new_bytes"] is None else as_size(document["new_bytes"]),
            " ".join(f"{name}={value:.6g}" for name, value in document["metrics"].items()),
            "; ".join(filter(None, [document["damage"], *(f"pinned by {pin}" for pin in document["pins"])])),
        )
        for document in documents
    ]
    heads = [
        "step",
        "number",
        "incarnation",
        "made (UTC)",
        "size",
        "files",
        "new",
        "metrics",
        "damage and pins",
    ]
    print_table(heads, rows, right=["step", "number", "incarnation", "size", "files", "new"])
    return 0


def _say_lost(history: History) -> None:
    if history.lost:
        numbers = ", ".join(map(str, history.lost[:8]))
        say(
            f"records of the log cannot be read: {numbers}; penstock checkpoint repair --dry-run shows what can be done"
        )
