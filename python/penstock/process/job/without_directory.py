"""Jobs that run although their directory is gone: somebody removed it, or the disk below it.

Nothing can be asked of them, because the agent's socket was in there; their keepers and agents still say in their command line which
directory was theirs.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.process.watch.lineage import Process, everyone

EXECUTABLE = "penstock-agent"
ROLES = ("keeper", "agent")


class Removed(NamedTuple):
    """A job without a directory."""

    directory: Path
    #: Its keeper and its agent, as far as they run.
    supervisors: list[Process]

    @property
    def id(self) -> str:
        """Its name, while it had one."""
        return self.directory.name

    def ask_to_stop(self) -> None:
        """Ask for an orderly end: the keeper passes it on to the agent."""
        for each in self.supervisors:
            with suppress(ProcessLookupError, PermissionError):
                handle = os.pidfd_open(each.pid)
                try:
                    # The number may be somebody else's by now.
                    if each.words() and each.words()[2:3] == [str(self.directory)]:
                        signal.pidfd_send_signal(handle, signal.SIGTERM)
                finally:
                    os.close(handle)

    def is_there(self) -> bool:
        """Whether any of them still runs."""
        return any(job.directory == self.directory for job in removed(self.directory.parent.parent))


def removed(home: Path) -> list[Removed]:
    """Jobs of a home that run without a directory."""
    folder = (home / "jobs").resolve()
    found: dict[Path, list[Process]] = {}
    for each in everyone().values():
        words = each.words() if each.is_alive else []
        if len(words) < 3 or words[0] != EXECUTABLE or words[1] not in ROLES:
            continue
        directory = Path(words[2])
        if directory.parent == folder and not (directory / "job.json").exists():
            found.setdefault(directory, []).append(each)
    return [Removed(directory, processes) for directory, processes in found.items()]
