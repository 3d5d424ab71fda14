"""``python -m penstock.process.stacks DIRECTORY --json``: how the agent takes stacks before it ends a gang that hangs.

Answers with what could be read until the deadline; the exit code is 0 as long as there is an answer.
"""

import argparse
import sys
from pathlib import Path

import msgspec

from penstock.process.job.catalogue import Job
from penstock.process.stacks.collection import Asked, collect
from penstock.process.stacks.groups import ranks_in
from penstock.process.stacks.text import shown

#: The agent waits 10 s; an answer that comes later is lost.
DEADLINE_S = 8.0


def main() -> int:
    """Print the stacks of a job's workers."""
    parser = argparse.ArgumentParser(prog="penstock.process.stacks", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=ranks_in)
    parser.add_argument("--native", choices=("no", "one", "all"), default="no")
    parser.add_argument("--state", type=Path, help="instead of the job's own state.json")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S)
    asked = parser.parse_args()
    wish = Asked(
        ranks=None if asked.rank is None else frozenset(asked.rank),
        native=asked.native,
        deadline_s=asked.deadline,
        state=asked.state,
    )
    collected = collect(Job(asked.directory), wish)
    answer = msgspec.json.encode(collected) if asked.json else shown(collected).encode()
    sys.stdout.buffer.write(answer + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
