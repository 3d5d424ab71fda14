"""A reader of far data as a process of its own: ``python -m tests.operations.reading REGISTRY ADDRESS [share|ahead]``.

Instead of an address there may be a recipe's file.

It makes a batch for each line on its standard input (``open`` only opens) and answers with a line of JSON: step and digest, or the error that came instead; at the
end of its input it says what the store, the cache and the feed counted. So a test can break the world between two batches, and every
reading has caches, clients and limits that are its own.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

BATCH = 32
SEED = 11
#: No test waits longer for one line.
PATIENCE_S = 60.0
#: More steps than that are never read ahead of the one that is asked for.
_AHEAD_MAX = 16


class Reading:
    """The test's side of a reader."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def open(self) -> None:
        """The feed is opened, and nothing of its files read."""
        assert self._ask(b"open\n") == {"opened": True}

    def batch(self) -> dict[str, Any]:
        """The next batch: ``step`` and ``digest``, or ``error`` with the fields of the exception."""
        return self._ask(b"batch\n")

    def _ask(self, line: bytes) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self._line()

    def rest(self, batches: int, *, told_late: str = "") -> list[str]:
        """Digests of so many batches, none of which may fail; but for steps that were being read ahead while something failed, which may
        still tell of it."""
        answers: list[dict[str, Any]] = []
        late = 0
        while len(answers) < batches:
            one = self.batch()
            if told_late and one.get("error") == told_late and late < _AHEAD_MAX:
                late += 1
            else:
                answers.append(one)
        assert all("digest" in answer for answer in answers), answers
        return [answer["digest"] for answer in answers]

    def end(self) -> dict[str, Any]:
        """What was counted; the process ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        counts = self._line()
        assert self.process.wait(PATIENCE_S) == 0
        return counts

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # A reader that hangs is killed, so that the test fails with an empty line instead of never.
        bound = threading.Timer(PATIENCE_S, self.process.kill)
        bound.start()
        try:
            line = self.process.stdout.readline()
        finally:
            bound.cancel()
        assert line, f"the reader is gone, exit code {self.process.wait(PATIENCE_S)}"
        return msgspec.json.decode(line)  # type: ignore[no-any-return]


@contextmanager
def reading(
    registry: str, address: str, *words: str, variables: Mapping[str, str | None] | None = None
) -> Iterator[Reading]:
    """Start a reader; it is killed at the end if it is still there. A variable that is None is taken away."""
    environment = {**os.environ, **(variables or {})}
    command = [sys.executable, "-m", "tests.operations.reading", registry, address, *words]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in environment.items() if value is not None},
    ) as process:
        try:
            yield Reading(process)
        finally:
            process.kill()


def main() -> None:
    """Answer every line of the input with a batch."""
    import penstock as ps
    from penstock._rust import store_counts

    registry, address, *words = sys.argv[1:]
    shared = "share" in words
    recipe = (
        ps.Recipe.load(address)
        if address.endswith(".toml")
        else ps.Recipe(sources=[ps.Source(address)], seed=SEED, batch=BATCH)
    )

    def say(answer: object) -> int:
        return os.write(1, msgspec.json.encode(answer) + b"\n")

    feed: Any = None
    for line in sys.stdin:
        try:
            if feed is None:
                feed = ps.open(
                    recipe, registry=ps.Registry(registry), threads=1 if words else 0, share=shared
                )
            if line == "open\n":
                say({"opened": True})
                continue
            batch = next(feed)
            say({"step": batch.step, "digest": batch.digest})
        except ps.PenstockError as problem:
            shown = {
                name: value for name, value in vars(problem).items() if isinstance(value, str | int | float)
            }
            say({"error": type(problem).__name__, "message": str(problem), **shown})
    stalls = 0 if feed is None else feed.statistics().stalls
    say({**store_counts(), "stalls": stalls})
    if feed is not None:
        feed.close()


if __name__ == "__main__":
    main()
