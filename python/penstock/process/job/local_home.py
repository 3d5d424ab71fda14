"""Where a host keeps what is its own of jobs of many hosts: a local disk, because a home may be shared by all of them."""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "PENSTOCK_LOCAL"
#: In a host directory: what the agent has to know about the other hosts.
HOST_FILE = "host.json"
#: In a job's directory: a line for each host, with the path of its directory there.
HOST_DIRECTORIES = "host_directories"


def local_home(environment: Mapping[str, str]) -> Path:
    """The folder; it is made 0700, and one of another owner is refused."""
    named = environment.get(VARIABLE)
    return Path(named).expanduser() if named else Path(f"/tmp/penstock-{os.getuid()}")
