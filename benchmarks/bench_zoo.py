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
    for result in results(chosen()):
        counts[result["outcome"]] = counts.get(result["outcome"], 0) + 1
        words = f"{result['outcome']} in {result['seconds']} s"
        rows.append(
            (
                result["case"],
                float(result["outcome"] == result["expected"]),
                f"{words}: {result['reason'][:90]}",
            )
        )
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    table.add(f"all {len(rows)} of {len(CASES)} cases", min(value for _, value, _ in rows), summary)
    for row in rows:
        table.add(*row)
    return table
