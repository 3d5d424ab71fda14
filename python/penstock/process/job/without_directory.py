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
        for supervisor in self.supervisors:
            with suppress(ProcessLookupError, PermissionError):
                handle = os.pidfd_open(supervisor.pid)
                try:
                    # The number may be somebody else's by now.
                    if supervisor.words() and supervisor.words()[2:3] == [str(self.directory)]:
                        signal.pidfd_send_signal(handle, signal.SIGTERM)
                finally:
                    os.close(handle)

    def is_there(self) -> bool:
        """Whether any of them still runs."""
        return any(job.directory == self.directory for job in removed(self.directory.parent.parent))


def removed(home: Path) -> list[Removed]:
    """Jobs of a home that run without a directory."""
    folder = (home / "jobs").resolve()
    by_directory: dict[Path, list[Process]] = {}
    for process in everyone().values():
        words = process.words() if process.is_alive else []
        if len(words) < 3 or words[0] != EXECUTABLE or words[1] not in ROLES:
            continue
        directory = Path(words[2])
        if directory.parent == folder and not (directory / "job.json").exists():
            by_directory.setdefault(directory, []).append(process)
    return [Removed(directory, processes) for directory, processes in by_directory.items()]
