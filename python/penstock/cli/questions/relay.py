"""Commands about a job that was started by ssh from here: they are executed on one of its hosts, where everything about it is known.

The words are those that were typed, so every command works from where the job was started, with the same output and exit code. The login is
the user's own ssh, as it was for the start.
"""

import shlex
import subprocess
import sys
import time

from penstock.cli.output import say
from penstock.errors import JobSilent
from penstock.process.hosts.launcher.ssh_origin import SshOrigin, ssh_origin
from penstock.process.hosts.ssh.ssh_login import SSH_TROUBLE
from penstock.process.job.catalogue import Job

#: Hosts that are tried, one after the other; and how long a login may take.
HOSTS_MAX = 8
LOGIN_S = 10
#: A connection that lasted longer did what it should and broke.
BROKEN_S = 30.0


def execute_there(job: Job, name: str) -> None:
    """Execute the command that was typed on a host of the job, and end with its exit code. Returns where the job was not started by ssh."""
    origin = ssh_origin(job)
    if origin is None:
        return
    words = [job.id if word == name else word for word in sys.argv[1:]]
    for host in origin.hosts[:HOSTS_MAX]:
        begun_s = time.monotonic()
        code = _login(host, origin, words)
        if code != SSH_TROUBLE:
            raise SystemExit(code)
        if time.monotonic() - begun_s > BROKEN_S:
            break
        say(f"note: ssh does not reach {host}")
    tried = ", ".join(origin.hosts[:HOSTS_MAX])
    raise JobSilent(
        job=job.id,
        reason=f"none of its hosts can be asked by ssh ({tried})",
        hint="`ssh -o BatchMode=yes HOST true` must work for one of them",
    )


def _login(host: str, origin: SshOrigin, words: list[str]) -> int:
    """Run it there; how it ended. On a terminal it has one, too: it asks questions, and shows bars."""
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-T"]
    command = shlex.join([origin.python, "-m", "penstock.cli.main", *words])
    options = [
        "-o",
        "BatchMode=yes",
        "-o",
        "RemoteCommand=none",
        "-o",
        f"ConnectTimeout={LOGIN_S}",
        "-o",
        "LogLevel=ERROR",
    ]
    sys.stdout.flush()
    try:
        done = subprocess.run(
            ["ssh", *terminal, *options, host, f"exec {command}"],
            stdin=None if terminal == ["-t"] else subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise JobSilent(job=host, reason="this machine has no program called ssh") from None
    return 128 - done.returncode if done.returncode < 0 else done.returncode
