"""What is kept where a job was started by ssh: the names that ssh knows its hosts by, and their Python."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.process.job.catalogue import Job

FILE = "ssh.json"


class SshOrigin(msgspec.Struct, frozen=True):
    """How to log in to the hosts of a job again."""

    #: As they were named, with the user where there was one.
    hosts: list[str]
    python: str


def keep_origin(directory: Path, hosts: Sequence[str], python: str) -> None:
    """Write it into the job's directory of the launcher."""
    (directory / FILE).write_bytes(msgspec.json.encode(SshOrigin(list(hosts), python)))


def ssh_origin(job: Job) -> SshOrigin | None:
    """How to log in; nothing for a job that was started in another way, or elsewhere."""
    try:
        return msgspec.json.decode((job.directory / FILE).read_bytes(), type=SshOrigin)
    except (OSError, msgspec.MsgspecError):
        return None
