"""``python -m penstock.process.health.check_rank PLAN``: the program of a job that checks its hosts, one rank on each.

Rank 0 collects, at ``MASTER_ADDR:MASTER_PORT``, and writes the report in numbered pieces of lines, because launchers pass lines on. All others write
how it ended, so that each host's command knows.
"""

import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from penstock.errors import PenstockError
from penstock.process.health import participant
from penstock.process.health.check_link import token_of
from penstock.process.health.examiner import CheckPlan, Examiner
from penstock.process.health.report import CheckReport
from penstock.process.health.verdict import judge

PIECE_LETTERS = 2000
BACKLOG = 4096
#: Hosts that were started later than this one still find the examiner.
LATE_S = 5.0
_PIECE = re.compile(r"penstock-check (\d+)/(\d+) (.*)$")
_END = re.compile(r"penstock-check-end (fit|unfit|unknown)\s*$")


def main(words: list[str], environment: Mapping[str, str]) -> int:
    """The program of one rank."""
    plan = msgspec.json.decode(words[0], type=CheckPlan)
    rank, ranks = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    place = participant.ExaminerPlace(environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
    directory = Path(environment["PENSTOCK_JOB_DIRECTORY"])
    life = f"{environment.get('PENSTOCK_JOB')} {environment.get('PENSTOCK_INCARNATION')}"
    token = token_of((directory / "key").read_bytes(), life)
    me = participant.Participant(rank, _name(directory))
    if rank == 0:
        report = _collect(me, place, token, plan, ranks, environment)
        sys.stdout.write("".join(f"{line}\n" for line in pieces(report)))
        return 0
    end = "unknown"
    try:
        end = participant.take_part(me, place, token, limit_s=plan.limit_s + LATE_S, environment=environment)
    except PenstockError as problem:
        sys.stderr.write(f"note: {problem}\n")
    sys.stdout.write(f"penstock-check-end {end}\n")
    return 0


def _collect(
    me: participant.Participant,
    place: participant.ExaminerPlace,
    token: bytes,
    plan: CheckPlan,
    ranks: int,
    environment: Mapping[str, str],
) -> CheckReport:
    listener = listen(place.address, place.port)
    own = threading.Thread(
        target=participant.take_part,
        args=(me, place, token),
        kwargs={"limit_s": plan.limit_s, "environment": environment},
        name="penstock-own-part",
        daemon=True,
    )
    own.start()
    with listener:
        examiner = Examiner(listener, token, dict.fromkeys(range(ranks), ""), plan)
        return examiner.collect(lambda report: "fit" if judge(report).is_well else "unfit")


def listen(address: str, port: int) -> socket.socket:
    """Where hosts report; port 0: any."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(BACKLOG)
    return listener


def _name(directory: Path) -> str:
    try:
        return str(json.loads((directory / "host.json").read_text())["name"])
    except (OSError, ValueError, KeyError):
        return os.uname().nodename


def pieces(report: CheckReport) -> Iterable[str]:
    """A report as lines."""
    text = json.dumps(msgspec.to_builtins(report), ensure_ascii=True, separators=(",", ":"))
    parts = [text[begin : begin + PIECE_LETTERS] for begin in range(0, len(text), PIECE_LETTERS)]
    return [f"penstock-check {number}/{len(parts)} {part}" for number, part in enumerate(parts, start=1)]


class ReportReader:
    """Puts a report together again, of lines that a launcher passes on with marks of its own before them."""

    def __init__(self) -> None:
        self._parts: dict[int, str] = {}
        self._count = 0
        #: How the check ended, where only that was told here.
        self.end = ""

    def take(self, line: str) -> bool:
        """Whether a line was part of it."""
        ended = _END.search(line)
        if ended is not None:
            self.end = ended[1]
            return True
        match = _PIECE.search(line.rstrip("\r\n"))
        if match is None:
            return False
        self._parts[int(match[1])], self._count = match[3], int(match[2])
        return True

    def report(self) -> CheckReport | None:
        """The whole; nothing unless all of it came."""
        if not self._count or len(self._parts) < self._count:
            return None
        text = "".join(self._parts[number] for number in sorted(self._parts))
        return msgspec.json.decode(text, type=CheckReport)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
