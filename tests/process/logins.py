"""A stand-in for the way to other hosts: a program called ``ssh`` that runs what it is given on this machine, and an agent that only echoes.

Everything else is real: processes, pipes, the program of the login, bundles, the farewell.
"""

import os
import sys
from pathlib import Path

SSH = """#!/bin/sh
# ssh -T -o NAME=VALUE … HOST COMMAND
while [ "${{1#-}}" != "$1" ]; do
  [ "$1" = "-o" ] && shift
  shift
done
host="$1"
case "$host" in
  denied*) echo "me@$host: Permission denied (publickey)." >&2; exit 255 ;;
  unknown*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
esac
export HOME="{folder}/$host" PENSTOCK_HOME="{folder}/$host/home" PENSTOCK_LOCAL="{folder}/$host/local"
export SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22"
mkdir -p "$HOME"
echo "welcome to $host"
exec sh -c "$2"
"""

AGENT = """#!{python}
import json, os, signal, sys, time
from pathlib import Path
if len(sys.argv) < 3:
    sys.exit("error: usage: agent launch DIRECTORY")
directory = Path(sys.argv[2])
host = json.loads((directory / "host.json").read_text())
job = json.loads((directory / "job.json").read_text())
print(f"[{{host['node_rank']}}] here", flush=True)
(directory / "pid").write_text(str(os.getpid()))
def stop(number, frame):
    print(f"[{{host['node_rank']}}] signal {{number}}", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
words = job["roles"][0]["command"]
if words[-1] == "wait":
    time.sleep(60)
sys.exit(int(words[-1]) if words[-1].isdigit() else 0)
"""


def stand_in(folder: Path) -> tuple[dict[str, str], Path]:
    """An environment whose ``ssh`` is the stand-in, and the agent to ship."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(SSH.format(folder=folder))
    (tools / "ssh").chmod(0o755)
    agent = folder / "penstock-agent"
    agent.write_text(AGENT.format(python=sys.executable))
    agent.chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PENSTOCK_HOME": str(folder / "launcher")}, agent
