"""The whole state zoo: every case is bit-equal after a resume, refused with a typed error, or named in ``run.unpinned``."""

from benchmarks.table import Table
from benchmarks.zoo.harness import CASES, chosen, results


def run() -> Table:
    """Run all cases whose packages are installed; the value of a case is 1 if it ended as it should."""
    table = Table(
        "a resumed program has the bits of one that was not interrupted, or it is told", "as expected", False
    )
    counts: dict[str, int] = {}
    rows = []
    for found in results(chosen()):
        counts[found["outcome"]] = counts.get(found["outcome"], 0) + 1
        words = f"{found['outcome']} in {found['seconds']} s"
        rows.append(
            (found["case"], float(found["outcome"] == found["expected"]), f"{words}: {found['reason'][:90]}")
        )
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    table.add(f"all {len(rows)} of {len(CASES)} cases", min(value for _, value, _ in rows), told)
    for row in rows:
        table.add(*row)
    return table
