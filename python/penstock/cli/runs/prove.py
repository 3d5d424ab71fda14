"""``penstock runs prove``: an interrupted run equals one that was not."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, say
from penstock.cli.runs.place import run_at
from penstock.cli.runs.run_text import print_differences
from penstock.errors import UsageError
from penstock.run.proof.proof import Proof, prove

prove_app = command_app(
    "prove",
    "Show that an interrupted run equals an uninterrupted one, bit for bit, by executing its steps again.",
    examples=(
        "  penstock runs prove runs/exp1 --steps 1000:1100\n"
        "  penstock runs prove runs/exp1 --json | jq .differences[0].sentence"
    ),
)


@prove_app.default
def prove_run(
    run: str,
    *,
    steps: Annotated[str, Parameter(help="A:B, the steps from A to B-1 (default: all).")] = "",
    anyway: Annotated[bool, Parameter(negative=(), help="Try it even if the run is not pinned.")] = False,
    keep: Annotated[
        Path | None, Parameter(help="Keep the results of the second execution in this folder.")
    ] = None,
    json: Json = False,
) -> int:
    """Start the run's program again in a clean place, from the nearest checkpoint, under the same layout and settings; then compare batches,
    generators, losses and parameters of every step and rank. The exit code is 1 when anything differs.

    Parameters
    ----------
    run
        The directory of a run, run:DIR, or a name below runs/.
    """
    proof = prove(run_at(run), steps=_steps(steps), anyway=anyway, keep=keep)
    if json:
        print_json(proof.to_json())
    else:
        _print_proof(proof)
    return 0 if proof.equal else 1


def _steps(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    first, _, stop = text.partition(":")
    if not (first.isdecimal() and stop.isdecimal()):
        raise UsageError(f"--steps must be two numbers, as in 1000:1100, got {text}")
    return int(first), int(stop)


def _print_proof(proof: Proof) -> None:
    begun = "from the start" if proof.loaded is None else f"from the checkpoint of step {proof.loaded}"
    ratio = "" if proof.ratio is None else f", {proof.ratio:.2f} x"
    print_facts(
        {
            "run": proof.directory,
            "steps": f"{proof.first}:{proof.stop}, executed by {proof.lives} lives, and again in one go {begun}",
            "compared": ", ".join(f"{count} {name}" for name, count in proof.compared.items()),
            "time": f"trained in {proof.trained_s:.2f} s, proved in {proof.wall_s:.2f} s{ratio}",
            "result": "equal, bit for bit" if proof.equal else f"{len(proof.differences)} differences",
        }
    )
    print_differences(proof)
    for note in proof.notes:
        say(f"note: {note}")
