"""``penstock logs`` of ranks on many hosts: searched where the logs are, merged by time."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.cli.escape import coloured
from penstock.cli.job.log_lines import clock_time
from penstock.cli.output import print_json, say
from penstock.errors import UsageError
from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import ask_hosts, check_patience, left_s
from penstock.process.questions.host_choice import hosts_of
from penstock.process.questions.host_logs import LogLine, lines_of_all

#: Newest lines of each host, where nobody says how many.
LINES = 1000
LINES_MAX = 100_000


class LogSearch(msgspec.Struct, frozen=True):
    """Whose lines, and which of them."""

    hosts: str | None
    ranks: str | None
    role: str | None
    streams: Sequence[str]
    pattern: str | None
    since: str | None
    until_ms: int | None
    lines: int | None
    patience_s: float


def logs_of_hosts(job: Job, search: LogSearch, *, times: bool, json: bool) -> int:
    """Ask every chosen host for its newest lines that match, and show all of them by time."""
    check_patience(search.patience_s)
    lines = LINES if search.lines is None else search.lines
    if not 0 < lines <= LINES_MAX:
        raise UsageError(f"--tail must be 1 to {LINES_MAX} over many hosts, got {lines}")
    begun_s = time.monotonic()
    hosts = hosts_of(job, patience_s=search.patience_s)
    chosen = hosts.choose(names=search.hosts, ranks=search.ranks)
    task: dict[str, Any] = {"do": "logs", **msgspec.to_builtins(search), "lines": lines}
    answer = ask_hosts(job, chosen, task, patience_s=left_s(search.patience_s, begun_s))
    log_lines = lines_of_all(answer.parts)
    roles = {line.role for line in log_lines}
    for line in log_lines:
        if json:
            print_json({"at": line.at_ms / 1000, **_about(line)})
        else:
            _show(line, times=times, one_role=len(roles) <= 1)
    sys.stdout.flush()
    for part in answer.parts:
        name = hosts.named(part.hosts)
        if part.head["problem"]:
            say(f"note: {name}: {part.head['problem']}; --patience gives it more time")
        if part.cut:
            say(f"note: {name}: its lines are too many beside those of the others; --tail asks for fewer")
        if not part.cut and part.head["sent"] < part.head["found"]:
            newest = f"the newest {part.head['sent']:,} of {part.head['found']:,} lines"
            say(f"note: {name}: {newest}; --tail, --since and --grep choose")
    say(answer.account.line())
    return 0 if answer.account.is_whole else 1


def _about(line: LogLine) -> dict[str, Any]:
    about = msgspec.to_builtins(line)
    return {name: about[name] for name in ("role", "rank", "stream", "offset", "text")}


def _show(line: LogLine, *, times: bool, one_role: bool) -> None:
    moment = f"{clock_time(line.at_ms)} " if times else ""
    who = str(line.rank) if one_role else f"{line.role}-{line.rank}"
    text = f"{moment}[{who}] {line.text}\n".encode(errors="replace")
    sys.stdout.buffer.write(coloured(text) if sys.stdout.isatty() else text)
