"""A process that reads batches of a recipe that is measured era by era, to be killed or interrupted.

``python -m tests.data.era_reader FOLDER LOG STEPS HOLD`` reads STEPS steps with small eras and appends the digest of each to LOG. Every
slice that is measured is told on stdout. At the slice HOLD (counted from 1; 0 for none) measuring is held until stdin
ends, so that whoever wants to kill it cannot be too late. ``unclosed`` as a fifth argument leaves the feed open at the end.
"""

import sys
from pathlib import Path

import penstock as ps
from penstock.data import Feed
from penstock.data.feed.options import ReadOptions
from penstock.data.plan.plan import prepare
from tests.data.test_era_feed import SIZES


def main(folder: Path, log: Path, steps: int, hold: int, *, unclosed: bool) -> None:
    calls = 0

    def watch(what: str, done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        print(f"{what}: {done} of {total}", flush=True)
        if calls == hold:
            sys.stdin.read()

    recipe = ps.Recipe.load(folder / "recipe.toml")
    plan = prepare(recipe, ps.Registry(folder / "registry"), watch, sizes=SIZES)
    feed = Feed(plan, ps.Lane(), options=ReadOptions(threads=2))
    with log.open("a") as file:
        for _ in range(steps):
            file.write(next(feed).digest + "\n")
            file.flush()
    if not unclosed:
        feed.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5]), unclosed="unclosed" in sys.argv)
