"""``penstock runs``: training runs, across all of their lives."""

from penstock.cli.output import command_app

app = command_app(
    "runs",
    "List training runs, and tell the story of one across all of its lives.",
    examples="  penstock runs list runs\n  penstock runs show runs/exp1\n  penstock runs show runs/exp1 --json | jq .kind",
)

#: Command -> its purpose and where it lives; loaded when called. Held against the commands by the tests.
COMMANDS = {
    "list": ("List the runs in a folder: lives, steps, loss, and how the last life ended.", "looking"),
    "show": ("Tell the story of a run: starts, restores, checkpoints, decisions, ends.", "looking"),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(
        f"penstock.cli.runs.{_module}:{_name}_app",
        name=_name,
        help=_purpose,
        sort_key=list(COMMANDS).index(_name),
    )
