"""Jobs: gangs of processes, started and supervised by ``penstock-agent``.

The supervision is a Rust executable without Python (``crates/penstock-process``). This floor describes a job to it, starts it,
and reads and asks afterwards. ``pulse``, ``phase`` and ``notice`` are for the workers themselves. Names are loaded when first used: a
worker that only pulses imports nothing else.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import AgentMissing, JobSilent, JobUnknown, ProcessError
    from penstock.process.asking import ask, stop
    from penstock.process.describing import Budget, Hang, JobSpec, Policy, Role, Slots
    from penstock.process.jobs import GangState, Job, JobState, find, jobs
    from penstock.process.launching import Launch, Restarts, prepare
    from penstock.process.pulsefile import Pulse, pulses_of
    from penstock.process.pulsing import Notice, notice, phase, pulse

__all__ = [
    "AgentMissing",
    "Budget",
    "GangState",
    "Hang",
    "Job",
    "JobSilent",
    "JobSpec",
    "JobState",
    "JobUnknown",
    "Launch",
    "Notice",
    "Policy",
    "ProcessError",
    "Pulse",
    "Restarts",
    "Role",
    "Slots",
    "ask",
    "find",
    "jobs",
    "notice",
    "phase",
    "prepare",
    "pulse",
    "pulses_of",
    "stop",
]

_HOME = {
    **dict.fromkeys(("AgentMissing", "JobSilent", "JobUnknown", "ProcessError"), "penstock.errors"),
    **dict.fromkeys(("ask", "stop"), "penstock.process.asking"),
    **dict.fromkeys(("Budget", "Hang", "JobSpec", "Policy", "Role", "Slots"), "penstock.process.describing"),
    **dict.fromkeys(("GangState", "Job", "JobState", "find"), "penstock.process.jobs"),
    **dict.fromkeys(("Launch", "Restarts", "prepare"), "penstock.process.launching"),
    **dict.fromkeys(("Notice", "notice", "phase", "pulse"), "penstock.process.pulsing"),
    **dict.fromkeys(("Pulse", "pulses_of"), "penstock.process.pulsefile"),
}


class _Floor(ModuleType):
    """The module, whose function ``jobs`` is called like the file that it lives in: the function is what is meant."""

    @property
    def jobs(self) -> object:
        return import_module("penstock.process.jobs").jobs

    @jobs.setter
    def jobs(self, file: ModuleType) -> None:
        """Importing the file would put it in the function's place."""


sys.modules[__name__].__class__ = _Floor


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock.process' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return list(__all__)
