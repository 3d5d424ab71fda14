"""Causes that the ledger shows: restarts and compiling."""

from collections import Counter

from penstock.report.accounts.incidents import REPAIR_PARTS
from penstock.report.diagnosis.cause import Cause, seconds
from penstock.report.diagnosis.observation import Observation

_ADVICE = {
    "lost": "save more often: most of it are steps that were executed again",
    "hang": "shorten the patience for hangs (`--hang`): most of it is waiting for a rank that hangs",
    "start": "keep a warm Python (`--zygote`), and make the model faster: most of it is starting the program",
    "spawn": "keep a warm Python (`--zygote always`): most of it is making processes",
    "torn": "make steps shorter, or find what ends them: most of it is steps that were interrupted",
    "restore": "keep checkpoints nearer: most of it is reading them",
    "unmeasured": "start it with `penstock run`, which notes when a rank dies and starts it again",
    "queue": "ask for machines that are free sooner: most of it is waiting for them",
}


def restarts(observation: Observation) -> list[Cause]:
    """What all incidents cost, for each rank."""
    ledger = observation.ledger
    if ledger is None or not ledger.incidents:
        return []
    ranks = max(len(ledger.ranks), 1)
    cost = sum(incident.cost for incident in ledger.incidents) // ranks
    if cost <= 0:
        return []
    parts = {
        name: sum(incident.accounts.get(name, 0) for incident in ledger.incidents) for name in REPAIR_PARTS
    }
    worst = max(REPAIR_PARTS, key=lambda name: parts[name])
    count = len(ledger.incidents)
    dearest = max(ledger.incidents, key=lambda incident: incident.cost)
    words = "1 interruption costs" if count == 1 else f"{count} interruptions cost"
    return [
        Cause(
            "restarts",
            cost,
            f"{words} {seconds(cost)}, most of it `{worst}` ({seconds(parts[worst] // ranks)})",
            f"the dearest after life {dearest.life}",
            dearest.cause,
            _ADVICE.get(worst, "see `penstock incident`"),
            {"incidents": count, "accounts_ns": {name: spent for name, spent in parts.items() if spent}},
        )
    ]


def compiling(observation: Observation) -> list[Cause]:
    """What compiling takes, for each rank; where something is compiled again and again, what, how often and why."""
    ledger = observation.ledger
    spent = 0 if ledger is None else ledger.accounts["compile"] // max(len(ledger.ranks), 1)
    if ledger is None or spent <= 0:
        return []
    lives = max(len(rank.lives) for rank in ledger.ranks)
    how_long = f"{seconds(spent // lives)} in each of {lives} lives" if lives > 1 else f"{seconds(spent)}"
    again = [span for span in observation.compiles if span.why]
    reasons = Counter(span.why for span in again)
    reason, times = reasons.most_common(1)[0] if reasons else ("", 0)
    places = Counter(span.what for span in again if span.what)
    return [
        Cause(
            "compiling",
            spent,
            f"compiling takes {how_long}",
            f"at {places.most_common(1)[0][0].rpartition('/')[2]}" if places else "",
            f"compiled again {len(again)} times, {times} of them because {reason}" if again else "",
            "avoid new shapes (pad or bucket them, or torch.compile(dynamic=True))"
            if again
            else "keep the compiler's cache (TORCHINDUCTOR_CACHE_DIR) where the next life finds it; avoid new shapes",
            {"compiled": len(observation.compiles), "compiled_again": len(again)}
            if observation.compiles
            else {},
        )
    ]
