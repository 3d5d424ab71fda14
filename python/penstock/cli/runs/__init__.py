"""``penstock runs``: training runs, across all of their lives."""

from penstock.cli.output import command_app

app = command_app(
    "runs",
    "List training runs, tell the story of one across all of its lives, and prove that it is what it should be.",
    examples=(
        "  penstock runs list runs\n"
        "  penstock runs show runs/exp1\n"
        "  penstock runs prove runs/exp1 --steps 1000:1100\n"
        "  penstock runs watch runs/exp1 --serve 127.0.0.1:9464\n"
        "  penstock runs replay runs/exp1 --step 41207\n"
        "  penstock runs export runs/exp1 --to tensorboard:logs/exp1"
    ),
)

#: Command -> its purpose and where it lives; loaded when called. Held against the commands by the tests.
COMMANDS = {
    "list": ("List the runs in a folder: lives, steps, loss, and how the last life ended.", "list"),
    "show": ("Tell the story of a run: starts, restores, checkpoints, decisions, ends.", "show"),
    "prove": (
        "Show that an interrupted run equals an uninterrupted one, bit for bit, by executing its steps again.",
        "prove",
    ),
    "watch": (
        "Watch a run: serve what it does to Prometheus and raise alerts, from its files alone.",
        "watch",
    ),
    "replay": ("Execute one step again from the nearest checkpoint, and compare.", "replay"),
    "export": (
        "Write the steps of a run for TensorBoard, parquet, Perfetto or an OpenTelemetry receiver, once or as it grows.",
        "export",
    ),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(
        f"penstock.cli.runs.{_module}:{_name}_app",
        name=_name,
        help=_purpose,
        sort_key=list(COMMANDS).index(_name),
    )
