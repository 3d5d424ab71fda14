"""Entries of a journal as sentences."""

from collections.abc import Callable
from typing import Any

from penstock.report.quantities import duration, size
from penstock.run.journal.journal import Entry

#: Of an error's words; --json has all of them.
_REASON_LENGTH = 120


def sentence(entry: Entry) -> str:
    """What an entry tells; of one that lacks facts, or has others than we write, its kind."""
    tell = _SENTENCES.get(entry.kind)
    try:
        return entry.kind if tell is None else tell(entry.facts)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return entry.kind


def _start(facts: dict[str, Any]) -> str:
    by = "" if facts.get("launcher") == "none" else f" by {facts.get('launcher')}, job {facts.get('job')}"
    ranks = f"{facts.get('ranks')} rank{'' if facts.get('ranks') == 1 else 's'}"
    pinned = "" if facts.get("unpinned") else ", everything pinned"
    return f"started{by} with {ranks} on {facts.get('host')}, seed {facts.get('seed')}{pinned}"


def _restore(facts: dict[str, Any]) -> str:
    if "checkpoint" not in facts:
        return "begins from nothing"
    went = "went back to" if facts.get("why") != "start" else "goes on from"
    lost = f"; {facts['again']} steps are executed again" if facts.get("again") else ""
    return f"{went} the checkpoint of life {facts['saved_in']} ({facts['checkpoint'][:15]}…){lost}"


def _commit(facts: dict[str, Any]) -> str:
    return (
        f"saved {size(facts['bytes'])} ({size(facts['written'])} new), training held up {duration(1e9 * facts['blocked_s'])}, "
        f"on disk after {duration(1e9 * facts['durable_s'])}"
    )


def _notice(facts: dict[str, Any]) -> str:
    return f"asked to save{' and leave' if facts.get('leave') else ''}: {facts.get('reason')}"


def _verdict(facts: dict[str, Any]) -> str:
    out = facts.get("leave_out")
    steps = f", steps {out[0]} to {out[1] - 1} are left out" if out else ""
    return f"{facts['action']}: {facts['reason']}{steps}"


def _replayed(facts: dict[str, Any]) -> str:
    if facts.get("equal"):
        return "executed again: the same bits"
    return f"executed again: other bits on rank {', '.join(map(str, facts.get('ranks', ())))}"


def _weights(facts: dict[str, Any]) -> str:
    return "weights are now " + ", ".join(f"{name} {value:.3g}" for name, value in facts["weights"].items())


def _topology(facts: dict[str, Any]) -> str:
    (ranks, lanes), (now, now_lanes) = facts["before"], facts["now"]
    return f"{now} ranks in {now_lanes} lanes, before {ranks} in {lanes}"


def _end(facts: dict[str, Any]) -> str:
    reason = str(facts.get("reason", "")).strip().split("\n")[0]
    reason = reason if len(reason) <= _REASON_LENGTH else f"{reason[:_REASON_LENGTH]}…"
    return f"{facts['how']}: {facts['error']}: {reason}" if "error" in facts else str(facts["how"])


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "start": _start,
    "incident": lambda facts: (
        f"life {facts['life']} {'failed' if facts['ended'] == 'failed' else 'was killed'}"
        + (f": {facts['cause']}" if facts["cause"] else "")
    ),
    "restore": _restore,
    "commit": _commit,
    "save_failed": lambda facts: f"could not be saved: {facts.get('reason')}",
    "notice": _notice,
    "verdict": _verdict,
    "replayed": _replayed,
    "weights": _weights,
    "recipe": lambda facts: f"another recipe: {facts['now'][:15]}…, before {str(facts['before'])[:15]}…",
    "topology": _topology,
    "phase": lambda facts: f"{facts['name']} took {duration(1e9 * facts['seconds'])}",
    "stop": lambda facts: f"the program ends here: {facts['reason']}",
    "retention": lambda facts: f"keeps {facts.get('keeps')}, as when it was begun",
    "note": lambda facts: " ".join(
        [str(facts.get("text")), *(f"{k}={v}" for k, v in facts.items() if k != "text")]
    ),
    "end": _end,
    "alert": lambda facts: f"alert {facts.get('state')}: {facts.get('text')}",
}
