"""Commands that only look: list, show."""

from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.cli.checkpoint.place import choose_readable, open_checkpoints, refuse_empty
from penstock.cli.checkpoint.shown import figure, list_document, short, tensor_document, when
from penstock.cli.checkpoint.speed import bytes_progress
from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.output import size as as_size
from penstock.errors import UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.inspect.piece_reader import Reader
from penstock.state.inspect.statistics import Figures, figures_of
from penstock.state.log.history import History

_TENSORS_SHOWN = 20
_VALUES_SHOWN = 20

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
        documents = [list_document(each, opened.store) for each in opened.log.read().checkpoints()]
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


show_app = command_app(
    "show",
    "Show a checkpoint: tensors with types, shapes and norms; values; entries.",
    examples=(
        "  penstock checkpoint show runs/7b\n"
        "  penstock checkpoint show runs/7b 1000 --tensors 'model/*norm*' --norms\n"
        "  penstock checkpoint show runs/7b latest --json | jq .entries"
    ),
)


@show_app.default
def show_checkpoint(
    place: str,
    step: str = "latest",
    *,
    tensors: Annotated[str | None, Parameter(help="Only tensors whose names match, as in 'model/*'.")] = None,
    norms: Annotated[
        bool, Parameter(negative=(), help="Read them: norm, extremes, zeros, NaN and infinities.")
    ] = False,
    json: Json = False,
) -> int:
    """What a checkpoint consists of. Without --norms no tensor is read.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    step
        A step, latest, or number=N of the list.
    """
    with open_checkpoints(place) as opened:
        found = choose_readable(opened, step)
    manifest = found.manifest
    names = [name for name in manifest.tensors if tensors is None or fnmatchcase(name, tensors)]
    if tensors is not None and not names:
        raise UsageError(
            f"no tensor matches {tensors!r}", hint=f"there are {', '.join(list(manifest.tensors)[:4])} …"
        )
    figures: dict[str, Figures] = {}
    if norms:
        with bytes_progress(f"reading step {found.step}", quiet=json) as tell:
            figures = figures_of(Reader(manifest, found.store), names, tell)
    if json:
        print_json(_document(found, names, figures))
        return 0
    _print_facts(found)
    _print_tensors(found, names if tensors is not None or norms else names[:_TENSORS_SHOWN], figures)
    if tensors is None and not norms and len(names) > _TENSORS_SHOWN:
        say(f"and {len(names) - _TENSORS_SHOWN} tensors more (--tensors '*' shows all)")
    if tensors is None:
        _print_values(found)
    return 0


def _document(found: Checkpoint, names: list[str], figures: dict[str, Figures]) -> dict[str, Any]:
    manifest = found.manifest
    return {
        **found.to_json(),
        "run": manifest.run,
        "parent": manifest.parent,
        "ranks": manifest.ranks,
        "files": msgspec.to_builtins(manifest.files),
        "tensors": [
            {
                **tensor_document(name, manifest.tensors[name]),
                **({"figures": figures[name].to_json()} if name in figures else {}),
            }
            for name in names
        ],
        "values": manifest.values,
        "entries": msgspec.to_builtins(manifest.entries),
    }


def _print_facts(found: Checkpoint) -> None:
    manifest = found.manifest
    groups: dict[str, list[int]] = {}
    for name, tensor in manifest.tensors.items():
        groups.setdefault(name.partition("/")[0], []).append(tensor.bytes)
    print_facts(
        {
            "step": found.step,
            "number": found.number,
            "run": manifest.run,
            "incarnation": found.incarnation,
            "ranks": manifest.ranks,
            "made": f"{when(found.made)} UTC",
            "digest": found.digest,
            "parent": manifest.parent,
            "size": f"{as_size(found.bytes)} in {len(manifest.files)} files",
            "damage": found.damage,
            **{
                f"{name}/": f"{len(sizes):,} tensors, {as_size(sum(sizes))}" for name, sizes in groups.items()
            },
            **{name: f"{value:.6g}" for name, value in found.metrics.items()},
        }
    )
    print()


def _print_tensors(found: Checkpoint, names: list[str], figures: dict[str, Figures]) -> None:
    heads = ["tensor", "type", "shape", "size", "pieces"]
    more = ["norm", "least", "greatest", "zeros", "NaN", "infinite"] if figures else []
    rows = []
    for name in names:
        tensor = found.manifest.tensors[name]
        shape = "×".join(map(str, tensor.shape)) or "scalar"
        row: list[object] = [name, tensor.dtype, shape, as_size(tensor.bytes), len(tensor.pieces)]
        if (known := figures.get(name)) is not None:
            zeros = f"{known.zero_share:.2%}"
            row += [
                figure(known.l2),
                figure(known.least),
                figure(known.greatest),
                zeros,
                known.nan,
                known.infinite,
            ]
        rows.append(row)
    print_table([*heads, *more], rows, right=["size", "pieces", *more])


def _print_values(found: Checkpoint) -> None:
    values, entries = found.manifest.values, found.manifest.entries
    if values:
        print()
        print_table(
            ["value", ""], [(name, short(value)) for name, value in list(values.items())[:_VALUES_SHOWN]]
        )
        if len(values) > _VALUES_SHOWN:
            say(f"and {len(values) - _VALUES_SHOWN} values more (--json shows all)")
    own: dict[str, list[Any]] = {}
    for each in entries.ranks:
        for name, value in each.items():
            own.setdefault(name, []).append(value)
    rows = [(name, "all", short(value)) for name, value in entries.shared.items()]
    rows += [(name, f"{len(of_ranks)}, each its own", short(of_ranks[0])) for name, of_ranks in own.items()]
    if rows:
        print()
        print_table(["entry", "ranks", ""], rows)
