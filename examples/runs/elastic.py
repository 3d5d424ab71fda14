"""Begin on four ranks, go on with two: the same global batches, the state resharded, and the change in the journal."""

import subprocess
import sys
from pathlib import Path

import penstock as ps
from penstock.run.journal import journal
from penstock.run.journal import step_records as records

from corpus import corpus  # isort: skip

HERE = Path(__file__).parent
RUN = "runs/elastic"


def train(ranks: int, steps: int) -> None:
    """So many ranks, up to a step."""
    penstock = [sys.executable, "-m", "penstock.cli.main", "run", "--ranks", str(ranks), "--"]
    script = [sys.executable, str(HERE / "train_fsdp.py"), "--run", RUN, "--steps", str(steps)]
    subprocess.run([*penstock, *script], check=True)


def main() -> None:
    """Four, then two, and a look at what they trained on."""
    train(4, 8)
    train(2, 16)

    (change,) = (entry for entry in journal.read(RUN) if entry.kind == "topology")
    print(f"in the journal: {change.facts}")
    recipe, registry = corpus(Path("corpus"))
    with ps.open(recipe, registry=registry) as feed:
        for step, record in records.read(RUN).items():
            assert len(record.ranks) == (4 if step < 8 else 2)
            assert record.batch == next(feed).digest  # of the whole step, as one lane reads it
    print("16 steps: the global batches are those of the recipe, on four ranks and on two")


if __name__ == "__main__":
    main()
