"""``penstock run`` as the command-line library knows it: for ``--help`` and completion, made from the table of options."""

from dataclasses import field, make_dataclass
from keyword import iskeyword
from typing import Annotated, Any

from cyclopts import Group, Parameter

from penstock.cli.output import command_app
from penstock.cli.run.options import GROUPS, Option

app = command_app(
    "run",
    "Start a gang of ranks, keep them together, restart them, and leave nothing behind.",
    examples=(
        "  penstock run --ranks 8 -- python train.py --lr 3e-4\n"
        "  penstock run --ranks 8 --restarts 3 --detach -- ./train.sh\n"
        "  penstock run --nproc-per-node 4 train.py --lr 3e-4\n"
        "  penstock run --nnodes 2 --rdzv-endpoint gpu01:29400 --ranks 8 train.py   (on both hosts)\n"
        "  penstock run --hosts gpu[01-16] --ranks 8 train.py\n"
        "  penstock run --file job.toml --set roles.trainer.ranks=4"
    ),
)
_TYPES: dict[str, Any] = {
    "text": str | None,
    "count": int | None,
    "number": float | None,
    "flag": bool,
    "switch": bool,
    "many": list[str],
}


def _field(option: Option, group: Group) -> tuple[str, Any, Any]:
    parameter = Parameter(
        name=list(option.names),
        help=option.purpose,
        group=group,
        negative=None if option.kind == "switch" else (),
        show_default=option.default not in (None, "", False),
        show=not option.hidden,
    )
    default = field(default_factory=list) if option.kind == "many" else field(default=option.default)
    # A field cannot be called `with`; what people write is the option's own name.
    return option.key + "_" * iskeyword(option.key), Annotated[_TYPES[option.kind], parameter], default


Options = make_dataclass(
    "Options",
    [
        _field(option, Group(f"Options: {title}", sort_key=place))
        for place, (title, group) in enumerate(GROUPS.items())
        for option in group
    ],
    frozen=True,
    kw_only=True,
)


def run(
    *command: Annotated[
        str,
        Parameter(
            help="Program and arguments; all that follows the program is its own. A .py file is run by this Python."
        ),
    ],
    options: Any = None,
) -> int:
    """Ranks find RANK, WORLD_SIZE, MASTER_ADDR and the other variables of torchrun in their environment.

    The exit code is that of the rank that failed first. Ctrl-C stops orderly, a second one at once.
    """
    from penstock.cli.run.command import start
    from penstock.cli.run.options import CommandLine

    values = vars(options or Options())
    return start(CommandLine(values, frozenset(values), command, frozenset()))


Options.__module__ = __name__
# The type is made at run time, so type checkers cannot be told.
run.__annotations__["options"] = Annotated[Options | None, Parameter(name="*")]
app.default(run)
