"""What recording a span costs, against an empty `with` and against writing a JSON line through logging; how fast spans are read.

The last contender is how structured loggers of training frameworks work: a record object, a formatter that makes
JSON, and a synchronous write per begin and end.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from benchmarks.table import Table, best_of
from penstock import events
from penstock.events.columns import read_table
from penstock.report.recording import summaries_of

SPANS = 50_000
READ_SPANS = 1_000_000


def run() -> Table:
    """Measure in one run."""
    table = Table("a span costs at most 1 µs", "µs per span")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table.add("empty `with` (nullcontext)", per_span(lambda step: nullcontext()))
        table.add("penstock, not recording", per_span(lambda step: events.span("data.wait", step=step)))
        with events.recording(place):
            table.add("penstock, recording", per_span(lambda step: events.span("data.wait", step=step)))
            table.add("penstock, recording, called directly", direct())
            statistics = events.statistics()
            assert statistics is not None
            table.rows[-1].note = f"{statistics.lost} lost"
        objects, arrays = read_rates(place / "read.pev")
        table.rows[
            -1
        ].note += f"; read as arrays {arrays / 1e6:.1f} M spans/s, as objects {objects / 1e6:.2f} M"
        table.add(
            "logging with a JSON formatter", per_span(json_logger(place / "log.jsonl"), spans=SPANS // 10)
        )
    return table


def read_rates(path: Path) -> tuple[float, float]:
    """Spans in a second: as objects, and as arrays with a summary by kind."""
    kinds = ("data.wait", "run.step", "run.capture", "store.get")
    with events.recording(path):
        for step in range(READ_SPANS):
            with events.span(kinds[step % len(kinds)], step=step):
                pass
            if step % 10_000 == 0:
                events.flush()
    count = sum(1 for _ in events.read(path))

    def objects() -> None:
        for _ in events.read(path):
            pass

    def arrays() -> None:
        summaries = summaries_of([read_table(path)])
        assert sum(kind.count for kind in summaries) == count

    return count / best_of(objects), count / best_of(arrays)


def per_span(make: Callable[[int], AbstractContextManager[object]], *, spans: int = SPANS) -> float:
    """Microseconds for making, entering and leaving one span."""

    def work() -> None:
        for step in range(spans):
            with make(step):
                pass

    return best_of(work) / spans * 1e6


def direct() -> float:
    """The same without the lambda that the other rows share: what a training loop pays."""

    def work() -> None:
        span = events.span
        for step in range(SPANS):
            with span("data.wait", step=step):
                pass

    return best_of(work) / SPANS * 1e6


def json_logger(path: Path) -> Callable[[int], AbstractContextManager[object]]:
    """Spans as two JSON lines through the standard library's logging."""
    logger = logging.getLogger("benchmarks.events")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)

    @contextmanager
    def span(step: int) -> Iterator[None]:
        logger.info("begin", extra={"kind": "data.wait", "step": step, "time_ns": time.time_ns()})
        yield
        logger.info("end", extra={"kind": "data.wait", "step": step, "time_ns": time.time_ns()})

    return span


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's own fields."""
        fields = {key: record.__dict__[key] for key in ("kind", "step", "time_ns")}
        return json.dumps({"fact": record.msg, "process": record.process, "thread": record.thread, **fields})
