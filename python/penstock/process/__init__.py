"""Jobs: gangs of processes, started and supervised by ``penstock-agent``.

The supervision is a Rust executable without Python (``crates/penstock-process``). This floor describes a job to it, starts it,
and reads and asks afterwards. ``pulse``, ``phase`` and ``notice`` are for the workers themselves. Names are loaded when first used: a
worker that only pulses imports nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import AgentMissing, JobSilent, JobUnknown, ProcessError
    from penstock.process.job.catalogue import GangState, Job, JobState, find, jobs
    from penstock.process.job.control import ask, stop
    from penstock.process.job.launch import Launch, Restarts, prepare
    from penstock.process.job.spec import Budget, Hang, JobSpec, Policy, Role, Slots
    from penstock.process.watch.pulse import Notice, notice, phase, pulse
    from penstock.process.watch.pulse_file import Pulse, pulses_of

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
    **dict.fromkeys(("ask", "stop"), "penstock.process.job.control"),
    **dict.fromkeys(("Budget", "Hang", "JobSpec", "Policy", "Role", "Slots"), "penstock.process.job.spec"),
    **dict.fromkeys(("GangState", "Job", "JobState", "find", "jobs"), "penstock.process.job.catalogue"),
    **dict.fromkeys(("Launch", "Restarts", "prepare"), "penstock.process.job.launch"),
    **dict.fromkeys(("Notice", "notice", "phase", "pulse"), "penstock.process.watch.pulse"),
    **dict.fromkeys(("Pulse", "pulses_of"), "penstock.process.watch.pulse_file"),
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock.process' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return list(__all__)
