"""Jobs: gangs of processes, started and supervised by ``penstock-agent``.

The supervision is a Rust executable without Python (``crates/penstock-process``). This floor describes a job to it, starts it,
and reads and asks afterwards.
"""

from penstock.errors import AgentMissing, JobSilent, JobUnknown, ProcessError
from penstock.process.asking import ask, stop
from penstock.process.jobs import GangState, Job, JobState, find, jobs
from penstock.process.launching import Launch, Restarts, prepare

__all__ = [
    "AgentMissing",
    "GangState",
    "Job",
    "JobSilent",
    "JobState",
    "JobUnknown",
    "Launch",
    "ProcessError",
    "Restarts",
    "ask",
    "find",
    "jobs",
    "prepare",
    "stop",
]
