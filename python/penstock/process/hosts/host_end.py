"""What a host tells its starter: which hosts the job wants, and its own end. The end as the starter sees it: nothing of the job runs there any more, and how that is proved and told.

A login ends for many reasons, and none of them says that ranks have ended. So the program that receives a job on a host adopts everything
that the job leaves (a child subreaper), and speaks only when it has no child any more: the kernel says so. What it says carries a proof
that ranks cannot make. The launcher passes the word to other hosts, and any of them tells the job's leader, for whom the host is ``gone``:
its host rank is free at once, long before its lease ends. Nothing less than this is told, for example that an engine calls a host down.
"""

import ctypes
import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import JobSilent
from penstock.process.hosts.host_table import report_ended, wanted_hosts
from penstock.process.job.catalogue import FINAL, Job

_PR_SET_CHILD_SUBREAPER = 36
#: The agent ends its ranks within a second of its own death; a busy machine takes longer.
LAST_CHILD_S = 15.0
LOOK_S = 0.02
#: Until a leader has taken note; a new one may have to be chosen first.
TRIES = 40
AGAIN_S = 0.5


#: How lines begin that are no output of ranks.
OWN_WORDS = b'{"penstock": '


def adopt_orphans() -> None:
    """Become the parent of everything that our children leave."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_line(secret: str, host: str) -> bytes:
    """What a host says when nothing of the job is left on it. Who has not the job's secret cannot say it."""
    proof = hmac.new(bytes.fromhex(secret), b"ended " + host.encode(), hashlib.sha256).hexdigest()
    return json.dumps({"penstock": "ended", "proof": proof}).encode() + b"\n"


def wanted_line(secret: str, host: str, number: int, rows: Sequence[Mapping[str, Any]] | None) -> bytes:
    """What a host says of the host ranks that the job's leader asks a host for; nothing where it was not reached. Ranks cannot say it."""
    said = json.dumps({"number": number, "rows": rows})
    proof = hmac.new(bytes.fromhex(secret), f"wanted {host} {said}".encode(), hashlib.sha256).hexdigest()
    return json.dumps({"penstock": "wanted", "proof": proof, "said": said}).encode() + b"\n"


def wanted_rows(line: bytes, secret: str, host: str) -> tuple[int, list[dict[str, Any]] | None] | None:
    """What ``wanted_line`` made: which question it answers, and the rows. Nothing for any other line."""
    if not line.startswith(b'{"penstock": "wanted"'):
        return None
    try:
        message = json.loads(line)
        said, proof = str(message["said"]), str(message["proof"])
        answer = json.loads(said)
    except (ValueError, KeyError, TypeError):
        return None
    known = hmac.new(bytes.fromhex(secret), f"wanted {host} {said}".encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(proof, known):
        return None
    return int(answer["number"]), answer["rows"]


def ask_leader(
    directory: Path, tried: Sequence[Mapping[str, str]], answer: Callable[[list[dict[str, Any]] | None], None]
) -> threading.Thread:
    """Ask the job of a host of ours which hosts it wants, in the background."""

    def asking() -> None:
        try:
            rows: list[dict[str, Any]] | None = wanted_hosts(Job(directory), tried)
        except JobSilent:
            rows = None
        answer(rows)

    asker = threading.Thread(target=asking, name="penstock-host-wanted", daemon=True)
    asker.start()
    return asker


def has_ended_untold(directory: Path) -> bool:
    """Whether a job that did not say how it ended is gone with all its processes. Only for who has adopted orphans."""
    if Job(directory).phase() in FINAL:
        return False
    until = time.monotonic() + LAST_CHILD_S
    while time.monotonic() < until:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            time.sleep(LOOK_S)
    return False


def tell_leader(directory: Path, host: str, by: str) -> threading.Thread:
    """Tell the job of a host of ours, in the background, that another host has ended."""
    teller = threading.Thread(
        target=_tell, args=(Job(directory), host, by), name="penstock-host-end", daemon=True
    )
    teller.start()
    return teller


def _tell(job: Job, host: str, by: str) -> None:
    pause = threading.Event()
    for _ in range(TRIES):
        try:
            if report_ended(job, host, by):
                return
        except JobSilent:
            if job.phase() in FINAL:
                return
        pause.wait(AGAIN_S)
