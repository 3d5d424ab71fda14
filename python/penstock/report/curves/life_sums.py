"""The ledger life by life, over all ranks, and the stacks behind stalls."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.observe.steps import StackSample
from penstock.report.accounts.account_names import ACCOUNTS, PARTS
from penstock.report.accounts.ledger import Ledger
from penstock.report.accounts.life_accounts import LifeAccounts

#: Lives that are shown one by one; older ones are one sum.
LIVES_MAX = 60
_FRAMES_MAX = 12


def life_sums(ledger: Ledger) -> list[dict[str, Any]]:
    """Nanoseconds by account and part; with more lives than that, the first line is the sum of the oldest ones."""
    lives: dict[int, list[LifeAccounts]] = {}
    for rank in ledger.ranks:
        for life in rank.lives:
            lives.setdefault(life.number, []).append(life)
    numbers = sorted(lives)
    older, shown = numbers[:-LIVES_MAX], numbers[-LIVES_MAX:]
    groups = [older, *([number] for number in shown)] if older else [[number] for number in shown]
    return [_sum([life for number in group for life in lives[number]], group) for group in groups]


def _sum(lives: Sequence[LifeAccounts], numbers: Sequence[int]) -> dict[str, Any]:
    return {
        "life": numbers[0],
        "last_life": numbers[-1],
        "wall_ns": sum(life.wall for life in lives),
        "accounts": {name: sum(life.accounts[name] for life in lives) for name in ACCOUNTS},
        "parts": {name: sum(life.parts[name] for life in lives) for name in PARTS},
        "kept_steps": max(life.kept_steps for life in lives),
        "lost_steps": max(life.lost_steps for life in lives),
    }


def stall_stacks(stalls: Sequence[dict[str, Any]], stacks: Sequence[StackSample]) -> list[dict[str, Any]]:
    """The stalls of a report, each with the stack that was seen most often in it, innermost frame first."""
    wanted = {(stall["rank"], stall["step"]) for stall in stalls}
    seen: dict[tuple[int, int], Counter[tuple[str, ...]]] = {}
    for sample in stacks:
        if (sample.rank, sample.step) in wanted:
            seen.setdefault((sample.rank, sample.step), Counter())[sample.frames] += 1
    lines = []
    for stall in stalls:
        counts = seen.get((stall["rank"], stall["step"]), Counter())
        frames, count = counts.most_common(1)[0] if counts else ((), 0)
        lines.append(
            {**stall, "stack": list(frames[:_FRAMES_MAX]), "stack_seen": count, "stacks": counts.total()}
        )
    return lines
