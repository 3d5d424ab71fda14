"""A second ledger, painted nanosecond by nanosecond from the definitions: slow, and without an idea in common with the real one."""

from collections import Counter
from typing import Any

from penstock.report.accounts.account_names import ACCOUNTS, PARTS


def paint(document: dict[str, Any]) -> list[Counter[str]]:
    """By life in order of time: nanoseconds of every account, and of every part as ``train.part``."""
    lives = sorted(document["lives"], key=first)
    has_parts = any(phase[0] in PARTS for life in lives for phase in life.get("phases") or [])
    counters = []
    for number, life in enumerate(lives):
        counters.append(Counter(dict.fromkeys(ACCOUNTS, 0)))
        end = first(lives[number + 1]) if number + 1 < len(lives) else last(life)
        for at in range(first(life), end):
            name = colour(lives, number, at)
            phase = innermost(life, at)
            if phase in ACCOUNTS:
                name = phase
            counters[-1][name] += 1
            if name == "train":
                part = phase if phase in PARTS else "rest"
                counters[-1][f"train.{part if has_parts else 'unmeasured'}"] += 1
    return counters


def known(life: dict[str, Any], *names: str) -> list[int]:
    """Moments that are there."""
    return [life[name] for name in names if life.get(name) is not None]


def moments(life: dict[str, Any]) -> list[int]:
    """All but those of phases."""
    steps = [at for step in life.get("steps") or [] for at in step[1:] if at is not None]
    marks = [mark[0] for mark in life.get("resumed") or []]
    return [*known(life, "requested", "born", "joined", "ended", "died"), *steps, *marks]


def first(life: dict[str, Any]) -> int:
    """When it is first heard of."""
    edges: list[int] = [*moments(life), *(phase[1] for phase in life.get("phases") or [])]
    return min(edges)


def last(life: dict[str, Any]) -> int:
    """The last that is heard of it."""
    edges: list[int] = [*moments(life), *(phase[2] for phase in life.get("phases") or [])]
    return max(edges)


def innermost(life: dict[str, Any], at: int) -> str:
    """The phase that began last of those around a nanosecond; of equal ones the shortest, then the later in the file."""
    around = [
        (phase[1], -phase[2], number, phase[0])
        for number, phase in enumerate(life.get("phases") or [])
        if phase[1] <= at < phase[2]
    ]
    return max(around)[-1] if around else ""


def colour(lives: list[dict[str, Any]], number: int, at: int) -> str:
    """What a nanosecond is, phases aside: it belongs to what ends it."""
    life = lives[number]
    steps, marks = life.get("steps") or [], life.get("resumed") or []
    # What ends the nanosecond: the first of these after it.
    # With when it began, because of two at the same moment the one that began first has the time before it.
    events: list[tuple[int, float, int, str]] = []
    before = ""
    for name in ("requested", "born", "joined"):
        if life.get(name) is not None:
            pairs = {("requested", "born"): "queue", ("born", "joined"): "start"}
            events.append((life[name], -1, 0, pairs.get((before, name), "unmeasured")))
            before = name
    for place, mark in enumerate(marks):
        is_first = place == 0 and not any(step[1] < mark[0] for step in steps)
        label = "restore" if not is_first or before == "joined" else "unmeasured"
        events.append((mark[0], mark[0], 1, label))
    for place, step in enumerate(steps):
        if place == 0 and not any(mark[0] <= step[1] for mark in marks):
            events.append((step[1], -0.5, 1, "unmeasured"))
        if step[2] is not None:
            events.append((step[2], step[1], 2, "lost" if undone(lives, number, place) else "train"))
        else:
            after = [mark[0] for mark in marks if mark[0] > step[1]]
            after += [later[1] for later in steps[place + 1 : place + 2]] + known(life, "ended", "died")
            events.append((min(after, default=step[1]), step[1], 2, "torn"))
    is_trained = bool(steps or marks)
    state = {"joined": "restore", "born": "start", "requested": "queue"}.get(before, "unmeasured")
    if is_trained:
        state = "torn" if life.get("ended") is None else "finish"
    events += [(moment, float("inf"), 3, state) for moment in known(life, "ended", "died")]
    coming = [event for event in events if event[0] > at]
    if coming:
        return min(coming, key=lambda event: event[:3])[3]
    return "down" if known(life, "ended", "died") else "unmeasured"


def undone(lives: list[dict[str, Any]], number: int, place: int) -> bool:
    """Whether training went on from this step or an earlier one, later."""
    target = lives[number]["steps"][place]
    later: list[int] = [mark[1] for mark in lives[number].get("resumed") or [] if mark[0] > target[1]]
    here = lives[number]["steps"]
    later += [here[k][0] for k in range(place + 1, len(here)) if here[k][0] <= here[k - 1][0]]
    for life in lives[number + 1 :]:
        later += [mark[1] for mark in life.get("resumed") or []]
        later += [step[0] for step in life.get("steps") or []]
    return any(step <= target[0] for step in later)
