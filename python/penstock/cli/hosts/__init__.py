"""``penstock hosts``: what hosts need to be one job."""

from penstock.cli.output import command_app

app = command_app(
    "hosts",
    "The hosts of a job, and the key that hosts share so that they can join one.",
    examples="  penstock hosts list train-3f2a\n  penstock hosts key",
)

#: Command -> its purpose and where it lives; loaded when called.
COMMANDS = {
    "list": ("Show the hosts of a job: host rank, state, address, who votes and who leads.", "list_command"),
    "key": ("Make the key of your hosts unless there is one, and say how to copy it.", "key_command"),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(f"penstock.cli.hosts.{_module}:{_name}_app", name=_name, help=_purpose)
