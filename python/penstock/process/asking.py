"""Questions to the agent of a job, through its socket: one line of JSON each way."""

import os
import socket
import subprocess
from typing import Any

import msgspec

from penstock.errors import JobSilent
from penstock.process.jobs import FINAL, Job
from penstock.process.launching import agent_path

PATIENCE_S = 5.0
ANSWER_BYTES_MAX = 64 << 20


def ask(job: Job, question: dict[str, Any]) -> dict[str, Any]:
    """The agent's answer."""
    try:
        answer = _exchange(job, msgspec.json.encode(question) + b"\n")
    except OSError as problem:
        raise JobSilent(job=job.id, reason=problem.strerror or str(problem)) from problem
    try:
        found: dict[str, Any] = msgspec.json.decode(answer)
    except msgspec.DecodeError as problem:
        raise JobSilent(job=job.id, reason="it left before its answer was whole") from problem
    if not found.get("ok"):
        raise JobSilent(job=job.id, reason=str(found.get("problem", "it refused")))
    return found


def stop(job: Job, *, grace_s: float | None = None, force: bool = False) -> None:
    """Ask the job to end. Of a job whose keeper and agent are gone, what is left is killed."""
    phase = job.phase()
    if phase in FINAL:
        return
    if phase == "lost":
        subprocess.run([agent_path(), "sweep", job.directory], check=False)
        return
    grace_ms = None if grace_s is None else round(grace_s * 1000)
    try:
        ask(job, {"ask": "stop", "grace_ms": grace_ms, "force": force, "incarnation": None})
    except JobSilent:
        if job.phase() not in FINAL:
            raise


def _exchange(job: Job, line: bytes) -> bytes:
    # Addresses of sockets are short; through the open directory the job may lie as deep as it likes.
    folder = os.open(job.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
            talk.settimeout(PATIENCE_S)
            talk.connect(f"/proc/self/fd/{folder}/agent.sock")
            talk.sendall(line)
            talk.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while len(answer) < ANSWER_BYTES_MAX and (piece := talk.recv(1 << 16)):
                answer += piece
            return bytes(answer)
    finally:
        os.close(folder)
