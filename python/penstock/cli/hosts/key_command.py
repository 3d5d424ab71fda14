"""``penstock hosts key``: the key that hosts of one owner share."""

import os

from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json, print_text, say
from penstock.errors import HomeUnwritable
from penstock.process.hosts.host_key import key_path, make_key, read_key

key_app = command_app(
    "key",
    "Make the key of your hosts unless there is one, and say how to copy it.",
    examples="  penstock hosts key\n  scp -p ~/.penstock/key gpu02:.penstock/key",
)


@key_app.default
def key(*, json: Json = False) -> int:
    """Hosts that join a job prove that they have this key. Its content is never shown; hosts that share a home share it already."""
    path = key_path(home(), os.environ)
    try:
        is_new = make_key(path)
    except OSError as problem:
        raise HomeUnwritable(home=path.parent, reason=problem.strerror or str(problem)) from problem
    read_key(path)
    if json:
        print_json({"path": str(path), "made": is_new})
        return 0
    print_text(str(path))
    say(f"{'a new key' if is_new else 'there is a key already'}; every host of a job needs the same one")
    say(f"hint: `ssh HOST mkdir -p {path.parent} && scp -p {path} HOST:{path}` copies it")
    return 0
