"""A process that reads a recipe as training does, says what it has in its hands, and does what it is told on its input.

``python -m tests.view.feeding REGISTRY RECIPE TAP``: reads a batch for every line it gets, and answers with its step and digest.
"""

import sys
from pathlib import Path

import penstock as ps


def main() -> None:
    """Read until the input ends."""
    registry, recipe, tap = sys.argv[1:]
    with ps.open(ps.Recipe.load(recipe), registry=ps.Registry(registry), threads=0) as feed:
        feed.publish(Path(tap))
        print("ready", flush=True)
        for _ in sys.stdin:
            batch = next(feed)
            print(batch.step, batch.digest, flush=True)


if __name__ == "__main__":
    main()
