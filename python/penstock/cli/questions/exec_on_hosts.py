"""``penstock exec --hosts``: a command on many hosts, or beside ranks of all of them; equal outputs once."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.cli.escape import coloured
from penstock.cli.output import print_json, print_text, say
from penstock.errors import UsageError
from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import Answer, Part, ask_hosts, check_patience, left_s
from penstock.process.questions.host_choice import Hosts, hosts_of, numbers_of
from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import numbers_in, ranges
from penstock.report.quantities import size

RULE = "-" * 15
#: Of an answer without a single exit code.
NOBODY = 1


class HostChoice(msgspec.Struct, frozen=True):
    """Who runs it, and for how long whoever asks waits."""

    hosts: str | None
    ranks: str | None
    where: str | None
    patience_s: float
    role: str | None = None


def exec_on_hosts(job: Job, words: Sequence[str], choice: HostChoice, *, json: bool) -> int:
    """Run a command on every chosen host, or beside the chosen ranks; the largest exit code."""
    check_patience(choice.patience_s)
    if not words:
        raise UsageError("give a command after `--`", hint="`penstock exec --help` has examples")
    begun_s = time.monotonic()
    hosts = hosts_of(job, patience_s=choice.patience_s)
    chosen = hosts.choose(names=choice.hosts, ranks=choice.ranks, state=choice.where)
    task: dict[str, Any] = {"do": "exec", "words": list(words)}
    if choice.ranks is not None:
        wanted = set(numbers_of(choice.ranks, "--ranks"))
        task |= {"ranks": ranges(wanted & _ranks_on(hosts, chosen)), "role": choice.role}
    answer = ask_hosts(job, chosen, task, patience_s=left_s(choice.patience_s, begun_s))
    if json:
        _print_json(answer, hosts)
    else:
        _show(answer, hosts, words[0], choice)
    codes = [int(part.head["code"]) for part in answer.parts]
    return max([*codes, *([] if answer.account.is_whole else [NOBODY])], default=NOBODY)


def _ranks_on(hosts: Hosts, chosen: Sequence[int]) -> set[int]:
    rows = [hosts.rows[host] for host in chosen]
    return {(row.first_rank or 0) + place for row in rows for place in range(row.slots)}


def _label(hosts: Hosts, part: Part) -> str:
    return f"rank {part.ranks}" if part.ranks else hosts.named(part.hosts)


def _print_json(answer: Answer, hosts: Hosts) -> None:
    for part in answer.parts:
        names = [hosts.rows[host].name for host in numbers_in(part.hosts)]
        print_json(
            {
                "hosts": names,
                "ranks": numbers_in(part.ranks),
                "code": part.head["code"],
                "late": bool(part.head.get("late")),
                "output": part.body,
                "bytes_cut": part.cut,
            }
        )
    print_json({"account": msgspec.to_builtins(answer.account)})


def _show(answer: Answer, hosts: Hosts, command: str, choice: HostChoice) -> None:
    parts = sorted(answer.parts, key=lambda part: (_count(part), part.hosts, part.ranks))
    for part in parts:
        if part.body:
            _show_block(_label(hosts, part), _count(part), part)
    sys.stdout.flush()
    if parts:
        say(codes_line(parts, command, lambda members: _merged(hosts, members)))
    late = max((int((part.about or {}).get("limit_ms", 0)) for part in parts), default=0)
    if any(part.head.get("late") for part in parts):
        say(
            f"note: what took longer than {late / 1000:.1f} s was ended; --patience {choice.patience_s:g} is for all"
        )
    say(answer.account.line())


def _count(part: Part) -> int:
    return len(numbers_in(part.ranks or part.hosts))


def _show_block(label: str, count: int, part: Part) -> None:
    """As clubak does it: who, how many, and what they all wrote."""
    many = f" ({count})" if count > 1 else ""
    print_text(f"{RULE}\n{label}{many}\n{RULE}")
    text = part.body if part.body.endswith("\n") else part.body + "\n"
    raw = text.encode(errors="replace")
    sys.stdout.flush()
    sys.stdout.buffer.write(coloured(raw) if sys.stdout.isatty() else raw)
    if part.cut:
        sys.stdout.flush()
        say(f"note: {label}: {size(part.cut)} more were written and are not shown")


def codes_line(parts: Sequence[Part], command: str, name: Callable[[Sequence[Part]], str]) -> str:
    """``exit 0: gpu[01-15] · exit 127: gpu16 (nvidia-smi: not found)``; the largest group of a code once."""
    by_code: dict[tuple[int, str], list[Part]] = {}
    for part in parts:
        why = part.head.get("unstarted")
        reason = f" ({command}: {why})" if why else " (took too long)" if part.head.get("late") else ""
        by_code.setdefault((int(part.head["code"]), reason), []).append(part)
    return " · ".join(
        f"exit {code}: {name(members)}{reason}" for (code, reason), members in sorted(by_code.items())
    )


def _merged(hosts: Hosts, parts: Sequence[Part]) -> str:
    if any(part.ranks for part in parts):
        return f"rank {ranges(rank for part in parts for rank in numbers_in(part.ranks))}"
    return fold(hosts.rows[host].name for part in parts for host in numbers_in(part.hosts))
