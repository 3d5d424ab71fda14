"""``penstock checkpoint import``: checkpoints from others."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.checkpoint.byte_progress import bytes_progress
from penstock.cli.checkpoint.place import place_of
from penstock.cli.output import Json, command_app, print_json, say
from penstock.report.quantities import size as as_size
from penstock.state.exchange import (
    Imported,
    import_state,
    open_source,
)
from penstock.state.exchange.intake import Name
from penstock.store import open_store

import_app = command_app(
    "import",
    "Make a checkpoint of safetensors, torch or DCP files.",
    examples=(
        "  penstock checkpoint import runs/tuned Llama-3.1-8B --step 0 --prefix model/\n"
        "  penstock checkpoint import runs/7b old/step-1000.pt --step 1000\n"
        "  penstock checkpoint import runs/7b old/dcp-1000 --step 1000"
    ),
)


@import_app.default
def import_checkpoint(
    place: str,
    origin: Path,
    *,
    step: Annotated[int, Parameter(help="The training step that the state belongs to.")],
    prefix: Annotated[str, Parameter(help="Put before every name, as in model/.")] = "",
    run: Annotated[str, Parameter(help="Name of the run (default: the last part of the place).")] = "",
    force: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Import even into the place of a run, which may then not save there until it resumes.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """In bounded memory. Files are read without running any code that they bring along.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints; made if it is not there.
    origin
        A safetensors file, a folder of them, a file of torch.save, or a directory of torch.distributed.checkpoint.
    """
    source = open_source(origin, prefix)
    with bytes_progress(f"importing {origin}", quiet=json) as tell:
        done = import_state(source, open_store(place_of(place)), Name(step, run), force=force, tell=tell)
    if json:
        print_json({**_document(done), "left_out": done.left_out})
        return 0
    print(done.checkpoint.step)
    say(f"{done.tensors:,} tensors, {as_size(done.bytes)} in {done.files} files, {done.checkpoint.digest}")
    for reason in done.left_out[:20]:
        say(f"left out: {reason}")
    if len(done.left_out) > 20:
        say(f"left out in all: {len(done.left_out)} (--json lists them)")
    return 0


def _document(done: Imported) -> dict[str, Any]:
    return {**done.checkpoint.to_json(), "tensors": done.tensors, "files": done.files}
