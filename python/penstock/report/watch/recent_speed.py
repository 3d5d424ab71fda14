"""How fast a run is now: MFU and tokens a second of its newest rows alone, which alerts compare with the run's own median."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.observe.steps.flop_record import FlopNote
from penstock.report.run_mfu import mfu_from
from penstock.report.watch.rank_rows import RankRows
from penstock.report.watch.step_sums import StepSums

#: Rows that count as the newest.
_ROWS = 32


@dataclass(frozen=True, slots=True)
class Recent:
    """Of the newest rows; None where it is not known."""

    usual_step_s: float | None = None
    mfu: float | None = None
    tokens_per_s: float | None = None
    #: Why an MFU is more than a device can do.
    impossible: str = ""


def recent_speed(followed: Sequence[RankRows], notes: Sequence[FlopNote]) -> Recent:
    """Of the rows that are followed now."""
    sums = StepSums()
    ranks = 0
    for rows in followed:
        table = rows.pending()
        if len(table["step"]):
            newest = {name: column[-_ROWS:] for name, column in table.items()}
            sums.add(newest, newest["time"])
            ranks += 1
    if not ranks:
        return Recent()
    summed = sums.before(0, sums)
    speed = summed.speed(ranks)
    mfu = mfu_from(summed.counted(ranks), notes)
    p50, tokens, value = speed["p50_ns"], speed["tokens_per_s"], mfu["value"]
    return Recent(
        usual_step_s=p50 / 1e9 if isinstance(p50, int) else None,
        mfu=value if isinstance(value, float) else None,
        tokens_per_s=tokens if isinstance(tokens, float) else None,
        impossible=str(mfu["reason"]) if "impossible" in mfu else "",
    )
