"""``penstock checkpoint``: checkpoints, without an accelerator and without the code of the model."""

from penstock.cli.output import command_app

app = command_app(
    "checkpoint",
    "List, look into, verify, compare, export, import, prune and repair checkpoints; no GPU and no model code needed.",
    examples=(
        "  penstock checkpoint list runs/7b\n"
        "  penstock checkpoint verify s3://bucket/runs/7b --all\n"
        "  penstock checkpoint diff runs/7b 1000 2000\n"
        "  penstock checkpoint export runs/7b latest exported --prefix model/"
    ),
)

#: Command -> its purpose and where it lives; loaded when called. Held against the commands by the tests.
COMMANDS = {
    "list": ("List the checkpoints of a place: steps, sizes, what was new in each, damage, pins.", "list"),
    "show": ("Show a checkpoint: tensors with types, shapes and norms; values; entries.", "show"),
    "verify": (
        "Read every byte of checkpoints and report all damage with file, byte and tensor.",
        "verify",
    ),
    "diff": (
        "Compare two checkpoints: which tensors changed and by how much, and what stood still.",
        "diff",
    ),
    "export": ("Write a checkpoint for others: safetensors, torch, DCP, or a copy on its own.", "export"),
    "import": ("Make a checkpoint of safetensors, torch or DCP files.", "import_"),
    "prune": (
        "Retire checkpoints that nobody wishes to keep, and delete what nothing refers to.",
        "prune",
    ),
    "repair": (
        "Give the log and the manifests of a place both of their copies again, and rebuild what is lost.",
        "repair",
    ),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(
        f"penstock.cli.checkpoint.{_module}:{_name}_app",
        name=_name,
        help=_purpose,
        sort_key=list(COMMANDS).index(_name),
    )
