"""Processes that read one lane together, each told what to do over a pipe, to be stopped and killed.

They are forked from a server that has everything imported, so that a hundred of them cost seconds.
"""

import multiprocessing as mp
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import penstock as ps
from penstock._rust import quick_hash
from penstock.data.feed.feed import Feed, cursor_at
from penstock.data.feed.options import ReadOptions
from penstock.data.plan.plan import prepare
from penstock.data.records.values import encode
from tests.data.gallery import Gallery

#: Long enough for a machine that does other things; nobody waits for it when all is well.
PATIENCE_S = 60.0
_context = mp.get_context("forkserver")
# The program that runs the tests too, because every child would import it otherwise.
_context.set_forkserver_preload(["__main__", "tests.data.sharers", "tokenizers", "zoneinfo"])


def recipe_of(folder: Path, kind: str) -> tuple[ps.Recipe, ps.Registry]:
    """One of the streams that tests share."""
    if kind == "records":
        gallery = Gallery(folder)
        return gallery.mixed(), gallery.registry
    weights = [(0, {"web": 0.7, "code": 0.3}), (40, {"web": 0.2, "code": 0.8})]
    stages = [ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(64, "fit")]
    sources = [ps.Source("web@1"), ps.Source("code@1")]
    seed = 18 if kind == "other" else 17
    recipe = ps.Recipe(sources=sources, stages=stages, weights=weights, batch=8, seed=seed)
    return recipe, ps.Registry(folder / "registry")


def told_of(batch: Any) -> tuple[int, str, int]:
    """What two batches must agree about: step, digest, and the values that they hold."""
    fields = ("tokens", "cu_seqlens") if "tokens" in batch else tuple(batch)
    return batch.step, batch.digest, quick_hash(encode({name: batch[name] for name in fields}))


def _serve(line: Connection, folder: Path, kind: str, options: dict[str, Any]) -> None:
    recipe, registry = recipe_of(folder, kind)
    plan = prepare(recipe, registry)
    step, lane = options.pop("step", 0), ps.Lane(options.pop("lane", 0), of=2)
    reading = ReadOptions(**{"share": True, "threads": 0, **options})
    with Feed(plan, lane, cursor=cursor_at(plan, step), options=reading) as feed:
        line.send("open")
        while (count := line.recv()) is not None:
            if count:
                line.send([told_of(next(feed)) for _ in range(count)])
            else:
                line.send((feed.statistics().sharing, len(os.listdir("/proc/self/fd")), feed.cursor.step))


class Sharer:
    """One of the processes."""

    def __init__(self, folder: Path, kind: str = "tokens", **options: Any) -> None:
        self._line, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs, folder, kind, options), daemon=True)
        self.process.start()
        theirs.close()
        #: Opening is waited for when something is wanted of it, so that several open at the same time.
        self._opened = False

    def open(self) -> "Sharer":
        """Wait until it has its feed."""
        if not self._opened:
            self._opened = True
            assert self._answer() == "open"
        return self

    def _answer(self) -> Any:
        assert self._line.poll(PATIENCE_S), "it says nothing"
        return self._line.recv()

    def begin(self, count: int) -> None:
        """Let it read; ``end`` says what it read."""
        self.open()._line.send(count)

    def end(self) -> list[tuple[int, str, int]]:
        """What it read."""
        steps: list[tuple[int, str, int]] = self._answer()
        return steps

    def read(self, count: int) -> list[tuple[int, str, int]]:
        """Some batches."""
        self.begin(count)
        return self.end()

    def told(self) -> Any:
        """Its part in sharing."""
        self.open()._line.send(0)
        return self._answer()[0]

    def descriptors(self) -> int:
        """How many it has open."""
        self.open()._line.send(0)
        return int(self._answer()[1])

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it and see it dead."""
        self.signal(signal.SIGKILL)
        self.process.join(PATIENCE_S)
        assert self.process.exitcode == -signal.SIGKILL
        self._line.close()

    def close(self) -> None:
        """Let it end in order."""
        self.open()._line.send(None)
        self.process.join(PATIENCE_S)
        assert self.process.exitcode == 0
        self._line.close()
