"""Jobs: gangs of processes, started and supervised by ``penstock-agent``.

The supervision is a Rust executable without Python (``crates/penstock-process``). This floor describes a job to it, starts it,
and reads and asks afterwards. Names are loaded when first used: ``penstock run`` has to be quick and needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import AgentMissing, JobSilent, JobUnknown, ProcessError
    from penstock.process.asking import ask, stop
    from penstock.process.describing import Budget, Hang, JobSpec, Policy, Role, Slots
    from penstock.process.jobs import GangState, Job, JobState, find
    from penstock.process.launching import Launch, Restarts, prepare

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
    "Policy",
    "ProcessError",
    "Restarts",
    "Role",
    "Slots",
    "ask",
    "find",
    "prepare",
    "stop",
]

_HOME = {
    **dict.fromkeys(("AgentMissing", "JobSilent", "JobUnknown", "ProcessError"), "penstock.errors"),
    **dict.fromkeys(("ask", "stop"), "penstock.process.asking"),
    **dict.fromkeys(("Budget", "Hang", "JobSpec", "Policy", "Role", "Slots"), "penstock.process.describing"),
    **dict.fromkeys(("GangState", "Job", "JobState", "find"), "penstock.process.jobs"),
    **dict.fromkeys(("Launch", "Restarts", "prepare"), "penstock.process.launching"),
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock.process' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
