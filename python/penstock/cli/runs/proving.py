"""``penstock runs prove`` and ``replay``."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.errors import UsageError
from penstock.run.proof.proof import Proof, prove
from penstock.run.proof.replay import Replay, replay

_DIFFERENCES_SHOWN = 20

prove_app = command_app(
    "prove",
    "Show that an interrupted run equals an uninterrupted one, bit for bit, by executing its steps again.",
    examples=(
        "  penstock runs prove runs/exp1 --steps 1000:1100\n"
        "  penstock runs prove runs/exp1 --json | jq .differences[0].sentence"
    ),
)
replay_app = command_app(
    "replay",
    "Execute one step again from the nearest checkpoint, and compare.",
    examples="  penstock runs replay runs/exp1 --step 41207",
)


@prove_app.default
def prove_run(
    run: Path,
    *,
    steps: Annotated[str, Parameter(help="A:B, the steps from A to B-1 (default: all).")] = "",
    anyway: Annotated[
        bool, Parameter(negative=(), help="Try it with a run that is not pinned as well.")
    ] = False,
    keep: Annotated[Path | None, Parameter(help="Keep what was executed again, in this folder.")] = None,
    json: Json = False,
) -> int:
    """Start the run's program again in a clean place, from the nearest checkpoint, under the same layout and settings; then compare batches,
    generators, losses and parameters of every step and rank. The exit code is 1 when anything differs.

    Parameters
    ----------
    run
        The directory of the run.
    """
    proof = prove(run, steps=_steps(steps), anyway=anyway, keep=keep)
    if json:
        print_json(proof.to_json())
    else:
        _print_proof(proof)
    return 0 if proof.equal else 1


@replay_app.default
def replay_step(run: Path, *, step: Annotated[int, Parameter(help="Which one.")], json: Json = False) -> int:
    """Show the batch, loss and gradient norm of a step as recorded and as they are now. The exit code is 1 when anything differs.

    Parameters
    ----------
    run
        The directory of the run.
    """
    found = replay(run, step)
    if json:
        print_json(found.to_json())
    else:
        _print_replay(found)
    return 0 if found.equal else 1


def _steps(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    first, _, stop = text.partition(":")
    if not (first.isdecimal() and stop.isdecimal()):
        raise UsageError(f"--steps {text}: two numbers, as in 1000:1100")
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
    _print_differences(proof)
    for note in proof.notes:
        say(f"note: {note}")


def _print_replay(found: Replay) -> None:
    begun = "the start" if found.loaded is None else f"the checkpoint of step {found.loaded}"
    print_facts({"run": found.directory, "step": f"{found.step}, executed again from {begun}"})
    print()
    rows = []
    for rank, record in found.recorded.ranks.items():
        for which, each in (("recorded", record), ("now", found.repeated.ranks.get(rank))):
            if each is not None:
                rows.append((rank, which, each.batch, each.loss, each.loss_bits, each.grad_norm, each.tokens))
    print_table(["rank", "which", "batch", "loss", "bits", "gradient norm", "tokens"], rows)
    print()
    print("equal, bit for bit" if found.equal else f"{len(found.differences)} differences")
    _print_differences(found)
    if found.peek:
        say(f"hint: `{shlex.join(found.peek)}` shows its rows and where they came from")


def _print_differences(found: Proof | Replay) -> None:
    for number, difference in enumerate(found.differences[:_DIFFERENCES_SHOWN]):
        print(f"{'first: ' if number == 0 else '  then: '}{difference.sentence}")
    if found.differences[_DIFFERENCES_SHOWN:]:
        print(f"  and {len(found.differences) - _DIFFERENCES_SHOWN} more")
