"""A process that reads batches and writes down what it read, to be killed.

``python -m tests.data.reader FOLDER LOG LANES THREADS END PAUSE`` reads on from the last cursor in LOG. After each step it appends
the step, the digest of the whole step and the cursor as one line, makes that durable, and says so on stdout. It ends
at step END; after PAUSE steps it stops to wait for its end of stdin, so that whoever wants to kill it cannot be too late.
"""

import json
import os
import sys
from pathlib import Path

import penstock as ps
from penstock.data import Cursor, join


def lines_of(log: Path) -> list[dict[str, object]]:
    """The complete lines of a log; what a killed writer left of a last one does not count."""
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def main(folder: Path, log: Path, lanes: int, threads: int, end: int, pause: int) -> None:
    done = lines_of(log)
    log.write_text("".join(json.dumps(line) + "\n" for line in done))
    cursor = Cursor.from_json(str(done[-1]["cursor"])) if done else None
    print("opening", flush=True)
    recipe, registry = ps.Recipe.load(folder / "recipe.toml"), ps.Registry(folder / "registry")
    feeds = [
        ps.open(recipe, registry=registry, lane=ps.Lane(k, of=lanes), cursor=cursor, threads=threads)
        for k in range(lanes)
    ]
    with log.open("a") as file:
        while feeds[0].cursor.step < end:
            batches = [next(feed) for feed in feeds]
            line = {
                "step": batches[0].step,
                "digest": join([batch.digest for batch in batches]),
                "cursor": feeds[0].cursor.to_json(),
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
            print(line["step"], flush=True)
            pause -= 1
            if pause == 0:
                sys.stdin.read()
    for feed in feeds:
        feed.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:7]))
