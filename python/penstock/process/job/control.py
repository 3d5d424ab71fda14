"""Questions to the agent of a job, through its socket: one line of JSON each way."""

import os
import socket
import time
from typing import Any

import msgspec

from penstock.errors import JobElsewhere, JobSilent, SaveUnheard
from penstock.process.job.catalogue import ELSEWHERE, FINAL, Job
from penstock.process.sweep import Sweep, sweep
from penstock.process.watch.pulse_file import pulses_of

PATIENCE_S = 5.0
ANSWER_BYTES_MAX = 64 << 20
#: A notice is heard after the step that a rank is in.
SAVE_PATIENCE_S = 60.0
LOOK_S = 0.02
#: Where the agent of a job listens; it knows this host.
AGENT_SOCKET = "agent.sock"
#: Where the coordinator of a job of many hosts listens; it knows the job.
HOST_SOCKET = "host.sock"


def ask(
    job: Job, question: dict[str, Any], *, at: str = AGENT_SOCKET, patience_s: float = 0.0
) -> dict[str, Any]:
    """Ask the agent of a job, or whoever listens at another socket of it, and return the answer; what that may take comes on top."""
    try:
        answer = _exchange(job, msgspec.json.encode(question) + b"\n", at, PATIENCE_S + patience_s)
    except OSError as problem:
        hint = f"`penstock stop --force {job.id}` ends it without its help; `penstock logs` still works"
        raise JobSilent(job=job.id, reason=problem.strerror or str(problem), hint=hint) from problem
    try:
        reply: dict[str, Any] = msgspec.json.decode(answer)
    except msgspec.DecodeError as problem:
        raise JobSilent(job=job.id, reason="it left before its answer was whole") from problem
    if not reply.get("ok"):
        raise JobSilent(job=job.id, reason=str(reply.get("problem", "it refused")))
    return reply


def stop(job: Job, *, grace_s: float | None = None, force: bool = False) -> Sweep | None:
    """Ask the job to end. Of a job whose keeper and agent are gone, or do not answer to force, all is killed; what came of that."""
    phase = job.phase()
    if phase in FINAL:
        return None
    if phase == "lost":
        return sweep(job.directory)
    if phase == ELSEWHERE:
        raise elsewhere(job, "stop")
    grace_ms = None if grace_s is None else round(grace_s * 1000)
    try:
        ask(job, {"ask": "stop", "grace_ms": grace_ms, "force": force, "incarnation": None})
    except JobSilent:
        if job.phase() in FINAL:
            return None
        if force:
            return sweep(job.directory, end=True)
        raise
    return None


def elsewhere(job: Job, command: str) -> JobElsewhere:
    """Why nothing can be asked about a job of other hosts, and where to ask: by the engine that gave them, else by ssh."""
    from penstock.process.engines.reach import reach_of

    hosts = job.host_names()
    reach = reach_of(job.directory)
    way = " ".join(reach) if reach else f"ssh {next(iter(hosts), 'HOST')} penstock"
    return JobElsewhere(
        job=job.id,
        reason=f"it runs {job.reason()}",
        hint=f"`{way} {command} {job.id}`",
        reach=reach,
    )


def save(job: Job, *, timeout_s: float = SAVE_PATIENCE_S) -> tuple[int, int]:
    """Ask every rank that listens for notices to save and go on; how many have heard it, of how many who listen."""
    before = _listening(job)
    if not before:
        raise SaveUnheard(
            job=job.id,
            reason="none of its ranks listens for notices, so nobody would save",
            hint="ranks listen that train with `penstock.run`, or look at what `pulse(step)` gives back",
        )
    ask(job, {"ask": "save"})
    until = time.monotonic() + timeout_s
    while True:
        now = _listening(job)
        heard = [worker for worker, seen in before.items() if now.get(worker, seen) != seen]
        if len(heard) == len(before) or time.monotonic() > until:
            return len(heard), len(before)
        time.sleep(LOOK_S)


def is_saving(job: Job) -> bool:
    """Whether any rank says that it is saving."""
    return any(pulse.phase == "checkpoint" for pulse in pulses_of(job).values())


def _listening(job: Job) -> dict[tuple[str, int], int]:
    """The last notice that each listening rank of this life has seen."""
    state = job.state()
    lives = (
        {}
        if state is None
        else {
            (gang.role, worker["rank"]): gang.incarnation
            for gang, worker in state.workers
            if worker["exit"] is None
        }
    )
    return {
        worker: pulse.notice_seen
        for worker, pulse in pulses_of(job).items()
        if pulse.listens and lives.get(worker) == pulse.incarnation
    }


def _exchange(job: Job, line: bytes, at: str, patience_s: float) -> bytes:
    # Addresses of sockets are short; through the open directory the job may lie as deep as it likes.
    folder = os.open(job.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
            talk.settimeout(patience_s)
            talk.connect(f"/proc/self/fd/{folder}/{at}")
            talk.sendall(line)
            talk.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while len(answer) < ANSWER_BYTES_MAX and (piece := talk.recv(1 << 16)):
                answer += piece
            return bytes(answer)
    finally:
        os.close(folder)
