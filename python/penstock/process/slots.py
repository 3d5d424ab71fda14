"""What this machine has for jobs, who holds it, and who waits: read from locks, which need no server.

A lock is a file in a directory of the user; the agent's executable knows how to read it.
"""

import json
import subprocess
from typing import Any

import msgspec

from penstock.errors import SlotsImpossible, SlotsUnreadable
from penstock.process.job.launch import agent_path
from penstock.process.job.spec import JobSpec

PATIENCE_S = 30.0


class Share(msgspec.Struct, frozen=True):
    """What one worker has."""

    cpus: list[int]
    gpus: list[str]
    memory_bytes: int
    ports: list[int]


class HeldSlot(msgspec.Struct, frozen=True):
    """Who has it. Without a slot it is what a gang shares; without a rank, a spare."""

    job: str
    directory: str
    role: str
    slot: int | None
    rank: int | None
    pid: int
    since: float
    share: Share


class Ticket(msgspec.Struct, frozen=True, rename={"wanted": "for"}):
    """A job in the queue."""

    job: str
    directory: str
    role: str
    since: float
    #: In words: "2 GPUs, 8 CPUs".
    wanted: str


class SlotTable(msgspec.Struct, frozen=True):
    """Everything at one moment."""

    directory: str
    cpus: list[int]
    gpus: list[str]
    memory_bytes: int
    ports: dict[str, Any]
    held: list[HeldSlot]
    waiting: list[Ticket]


def check_slots(spec: JobSpec) -> None:
    """Refuse a job that wants more than this machine has, as its start would."""
    wants = [role.slots for role in spec.roles]
    if not any(any(vars(want).values()) for want in wants):
        return
    done = subprocess.run(
        [agent_path(), "check"],
        input=json.dumps(spec.to_json(spec.name or "job")),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if done.returncode != 0:
        raise SlotsImpossible(reason=done.stderr.strip().removeprefix("error: "))


def slots() -> SlotTable:
    """What there is, who holds it, and who waits, in their order."""
    done = subprocess.run(
        [agent_path(), "slots"], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if done.returncode != 0:
        raise SlotsUnreadable(reason=done.stderr.strip().removeprefix("error: "))
    return msgspec.json.decode(done.stdout, type=SlotTable)
