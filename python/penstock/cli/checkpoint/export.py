"""``penstock checkpoint export``: checkpoints for others."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from penstock.cli.checkpoint.byte_progress import bytes_progress
from penstock.cli.checkpoint.checkpoint_text import titled
from penstock.cli.checkpoint.place import choose_readable, open_checkpoints
from penstock.cli.output import Json, command_app, print_json, say
from penstock.errors import UsageError
from penstock.report.quantities import size as as_size
from penstock.state.checkpoint import Checkpoint
from penstock.state.exchange import (
    Choice,
    copy_checkpoint,
    export_dcp,
    export_safetensors,
    export_torch,
    need_torch,
)
from penstock.store import open_store

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}


export_app = command_app(
    "export",
    "Write a checkpoint for others: safetensors, torch, DCP, or a copy on its own.",
    examples=(
        "  penstock checkpoint export runs/7b latest exported --prefix model/ --dtype bf16\n"
        "  penstock checkpoint export runs/7b 1000 model.pt --to torch --prefix model/\n"
        "  penstock checkpoint export runs/7b 1000 dcp --to dcp\n"
        "  penstock checkpoint export runs/7b 1000 s3://bucket/kept --self-contained"
    ),
)


@Parameter(name="*")
class Chosen:
    """What goes out, and how."""

    def __init__(
        self,
        *,
        to: Annotated[
            Literal["safetensors", "torch", "dcp"], Parameter(help="The form of the files.")
        ] = "safetensors",
        self_contained: Annotated[
            bool,
            Parameter(negative=(), help="A place of checkpoints with this one and all that it refers to."),
        ] = False,
        prefix: Annotated[
            str, Parameter(help="Only names that begin with this; it is removed from them.")
        ] = "",
        only: Annotated[
            tuple[str, ...],
            Parameter(
                help="Only names that match, as in 'model/*norm*'; several may be given.",
                consume_multiple=False,
            ),
        ] = (),
        dtype: Annotated[
            Literal["bf16", "f16", "f32", "f64"] | None, Parameter(help="Cast floating-point tensors.")
        ] = None,
        max_shard: Annotated[str, Parameter(help="Largest size of one safetensors file.")] = "5GB",
    ) -> None:
        self.to = to
        self.self_contained = self_contained
        self.choice = Choice(prefix, tuple(only), None if dtype is None else dtype.upper())
        self.shard_bytes_max = _bytes(max_shard)


@export_app.default
def export_checkpoint(
    place: str,
    step: str,
    destination: str,
    *,
    chosen: Chosen | None = None,
    force: Annotated[bool, Parameter(negative=(), help="Replace what is at the destination.")] = False,
    json: Json = False,
) -> int:
    """In bounded memory, however large the state is; every byte is checked on its way. Prints what was written.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    step
        A step, latest, or number=N of the list.
    destination
        A folder (safetensors, dcp), a file (torch, or NAME.safetensors), or a place (--self-contained).
    """
    wanted = chosen or Chosen()
    with open_checkpoints(place) as opened:
        checkpoint = choose_readable(opened, step)
    if wanted.self_contained and wanted.choice != Choice():
        raise UsageError(
            "a self-contained copy is a copy of everything", hint="leave prefix, only and dtype away"
        )
    if wanted.to != "safetensors":
        need_torch()
    with bytes_progress(f"exporting {titled(checkpoint)}", quiet=json) as tell:
        if wanted.self_contained:
            copied = copy_checkpoint(checkpoint, open_store(destination), force=force, tell=tell)
            written, bytes_ = [destination], copied.bytes
        else:
            paths = _export(checkpoint, Path(destination), wanted, force, tell)
            written, bytes_ = [str(path) for path in paths], sum(path.stat().st_size for path in paths)
    if json:
        print_json(
            {"step": checkpoint.step, "number": checkpoint.number, "written": written, "bytes": bytes_}
        )
    else:
        print("\n".join(written))
        say(f"{titled(checkpoint)}: {as_size(bytes_)} in {destination}")
    return 0


def _export(checkpoint: Checkpoint, destination: Path, wanted: Chosen, force: bool, tell: Any) -> list[Path]:
    if wanted.to == "torch":
        return export_torch(checkpoint, destination, wanted.choice, force=force, tell=tell)
    if wanted.to == "dcp":
        return export_dcp(checkpoint, destination, wanted.choice, force=force, tell=tell)
    most = wanted.shard_bytes_max
    return export_safetensors(
        checkpoint, destination, wanted.choice, shard_bytes_max=most, force=force, tell=tell
    )


def _bytes(text: str) -> int:
    parsed = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if parsed is None or parsed[2] not in _UNITS:
        raise UsageError(f"{text!r} is not a size", hint="5GB, 500MB, 2GiB, or a number of bytes")
    return int(float(parsed[1]) * _UNITS[parsed[2]])
