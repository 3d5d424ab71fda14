"""``penstock runs replay``: one step, executed again."""

import shlex
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.runs.place import run_at
from penstock.cli.runs.run_text import print_differences
from penstock.run.proof.replay import Replay, replay

replay_app = command_app(
    "replay",
    "Execute one step again from the nearest checkpoint, and compare.",
    examples="  penstock runs replay runs/exp1 --step 41207",
)


@replay_app.default
def replay_step(
    run: str, *, step: Annotated[int, Parameter(help="The step to execute again.")], json: Json = False
) -> int:
    """Show the batch, loss and gradient norm of a step as recorded and as they are now. The exit code is 1 when anything differs.

    Parameters
    ----------
    run
        The directory of a run, run:DIR, or a name below runs/.
    """
    result = replay(run_at(run), step)
    if json:
        print_json(result.to_json())
    else:
        _print_replay(result)
    return 0 if result.equal else 1


def _print_replay(result: Replay) -> None:
    begun = "the start" if result.loaded is None else f"the checkpoint of step {result.loaded}"
    print_facts({"run": result.directory, "step": f"{result.step}, executed again from {begun}"})
    print()
    rows = []
    for rank, record in result.recorded.ranks.items():
        for which, side in (("recorded", record), ("now", result.repeated.ranks.get(rank))):
            if side is not None:
                rows.append((rank, which, side.batch, side.loss, side.loss_bits, side.grad_norm, side.tokens))
    print_table(["rank", "which", "batch", "loss", "bits", "gradient norm", "tokens"], rows)
    print()
    print("equal, bit for bit" if result.equal else f"{len(result.differences)} differences")
    print_differences(result)
    if result.peek:
        say(f"hint: `{shlex.join(result.peek)}` shows its rows and where they came from")
