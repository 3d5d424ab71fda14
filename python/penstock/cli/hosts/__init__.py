"""``penstock hosts``: what hosts need to be one job."""

from penstock.cli.output import command_app

app = command_app(
    "hosts",
    "Make the key that hosts share, so that they can join one job.",
    examples="  penstock hosts key\n  penstock hosts key --json | jq -r .path",
)

#: Command -> its purpose and where it lives; loaded when called.
COMMANDS = {
    "key": ("Make the key of your hosts unless there is one, and say how to copy it.", "key_command"),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(f"penstock.cli.hosts.{_module}:{_name}_app", name=_name, help=_purpose)
