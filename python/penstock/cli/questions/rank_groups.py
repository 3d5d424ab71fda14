"""Ranks of a job as few lines: those that are alike, or those of each host. Fits 80 columns at any size. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import ranges

#: A set that is longer is cut; `--json` has all of it.
SET_LETTERS_MAX = 24
#: From so many ranks on groups say more than rows.
ROWS_MAX = 16
HEADS = ("ranks", "count", "hosts", "state", "step", "life")
RIGHT = ("count", "step", "life")
#: Of processes that do not go on by themselves.
_HELD = {"T": "stopped", "t": "traced", "Z": "zombie", "gone": "gone"}

Row = dict[str, Any]


def groups_of_ranks(rows: Iterable[Row], by: str) -> list[tuple[str, ...]]:
    """Lines for `HEADS`; the rarest group first, or hosts in order. ``by`` is ``group`` or ``host``."""
    members: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["depth"] == 0 and row["role"] is not None:
            members.setdefault(_key(row, by), []).append(row)
    groups = sorted(members.values(), key=lambda group: _order(group, by))
    return [_line(group) for group in groups]


def _key(row: Row, by: str) -> tuple[Any, ...]:
    if by == "host":
        return row["role"], row.get("host_rank"), row.get("host")
    return row["role"], _state(row), row["incarnation"]


def _order(group: Sequence[Row], by: str) -> tuple[Any, ...]:
    first = group[0]
    if by == "host":
        host_rank = first.get("host_rank")
        return first["role"], host_rank is None, host_rank or 0
    return len(group), first["role"], first["rank"]


def _line(group: Sequence[Row]) -> tuple[str, ...]:
    states = sorted({_state(row) for row in group})
    steps = sorted({row["step"] for row in group if row.get("step") is not None})
    lives = sorted({row["incarnation"] for row in group if row["incarnation"] is not None})
    ranks = f"{group[0]['role']} {ranges(row['rank'] for row in group)}"
    hosts = fold({row["host"] for row in group if row.get("host")})
    return _cut(ranks), str(len(group)), _cut(hosts), _cut(", ".join(states)), _span(steps), _span(lives)


def _state(row: Row) -> str:
    """What tells ranks apart that nobody has to look at from those that somebody has."""
    if ended := row.get("exit"):
        code = ended.get("code")
        return f"over: {code}" if code is not None else f"over: signal {ended.get('signal')}"
    return str(row.get("held") or _HELD.get(row["state"], "runs"))


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]}-{numbers[-1]}"


def _cut(text: str) -> str:
    return text if len(text) <= SET_LETTERS_MAX else f"{text[: SET_LETTERS_MAX - 1]}…"
