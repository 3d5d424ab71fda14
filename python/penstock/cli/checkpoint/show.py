"""``penstock checkpoint show``: tensors, values and entries of one."""

from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.cli.checkpoint.byte_progress import bytes_progress
from penstock.cli.checkpoint.checkpoint_text import figure, short, tensor_document, when
from penstock.cli.checkpoint.place import choose_readable, open_checkpoints
from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.errors import UsageError
from penstock.report.quantities import size as as_size
from penstock.state.checkpoint import Checkpoint
from penstock.state.inspect.piece_reader import Reader
from penstock.state.inspect.statistics import Figures, figures_of

_TENSORS_SHOWN = 20


_VALUES_SHOWN = 20


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
        bool, Parameter(negative=(), help="Read the tensors: norm, extremes, zeros, NaN and infinities.")
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
        checkpoint = choose_readable(opened, step)
    manifest = checkpoint.manifest
    names = [name for name in manifest.tensors if tensors is None or fnmatchcase(name, tensors)]
    if tensors is not None and not names:
        raise UsageError(
            f"no tensor matches {tensors!r}", hint=f"there are {', '.join(list(manifest.tensors)[:4])} …"
        )
    figures: dict[str, Figures] = {}
    if norms:
        with bytes_progress(f"reading step {checkpoint.step}", quiet=json) as tell:
            figures = figures_of(Reader(manifest, checkpoint.store), names, tell)
    if json:
        print_json(_document(checkpoint, names, figures))
        return 0
    _print_facts(checkpoint)
    _print_tensors(checkpoint, names if tensors is not None or norms else names[:_TENSORS_SHOWN], figures)
    if tensors is None and not norms and len(names) > _TENSORS_SHOWN:
        say(f"and {len(names) - _TENSORS_SHOWN} tensors more (--tensors '*' shows all)")
    if tensors is None:
        _print_values(checkpoint)
    return 0


def _document(checkpoint: Checkpoint, names: list[str], figures: dict[str, Figures]) -> dict[str, Any]:
    manifest = checkpoint.manifest
    return {
        **checkpoint.to_json(),
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


def _print_facts(checkpoint: Checkpoint) -> None:
    manifest = checkpoint.manifest
    groups: dict[str, list[int]] = {}
    for name, tensor in manifest.tensors.items():
        groups.setdefault(name.partition("/")[0], []).append(tensor.bytes)
    print_facts(
        {
            "step": checkpoint.step,
            "number": checkpoint.number,
            "run": manifest.run,
            "incarnation": checkpoint.incarnation,
            "ranks": manifest.ranks,
            "made": f"{when(checkpoint.made)} UTC",
            "digest": checkpoint.digest,
            "parent": manifest.parent,
            "size": f"{as_size(checkpoint.bytes)} in {len(manifest.files)} files",
            "damage": checkpoint.damage,
            **{
                f"{name}/": f"{len(sizes):,} tensors, {as_size(sum(sizes))}" for name, sizes in groups.items()
            },
            **{name: f"{value:.6g}" for name, value in checkpoint.metrics.items()},
        }
    )
    print()


def _print_tensors(checkpoint: Checkpoint, names: list[str], figures: dict[str, Figures]) -> None:
    heads = ["tensor", "type", "shape", "size", "pieces"]
    more = ["norm", "least", "greatest", "zeros", "NaN", "infinite"] if figures else []
    rows = []
    for name in names:
        tensor = checkpoint.manifest.tensors[name]
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


def _print_values(checkpoint: Checkpoint) -> None:
    values, entries = checkpoint.manifest.values, checkpoint.manifest.entries
    if values:
        print()
        print_table(
            ["value", ""], [(name, short(value)) for name, value in list(values.items())[:_VALUES_SHOWN]]
        )
        if len(values) > _VALUES_SHOWN:
            say(f"and {len(values) - _VALUES_SHOWN} values more (--json shows all)")
    own: dict[str, list[Any]] = {}
    for rank_values in entries.ranks:
        for name, value in rank_values.items():
            own.setdefault(name, []).append(value)
    rows = [(name, "all", short(value)) for name, value in entries.shared.items()]
    rows += [(name, f"{len(of_ranks)}, each its own", short(of_ranks[0])) for name, of_ranks in own.items()]
    if rows:
        print()
        print_table(["entry", "ranks", ""], rows)
