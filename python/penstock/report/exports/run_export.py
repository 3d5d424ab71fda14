"""A run exported: once, or followed until it has ended. One look after another, each written as a whole before the next."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.report.curves.run_screen import signature_of
from penstock.report.exports.export_bookmark import ExportBookmark
from penstock.report.exports.export_tally import ExportTally
from penstock.report.exports.otlp_metrics import OtlpSink
from penstock.report.exports.otlp_request import Receiver
from penstock.report.exports.parquet_parts import ParquetSink
from penstock.report.exports.perfetto_trace import PerfettoSink
from penstock.report.exports.run_look import RunLook, look_at
from penstock.report.exports.target import ExportTarget
from penstock.report.exports.tensorboard_events import TensorboardSink

#: Seconds between two looks: at least, at most, and for each second that a look took.
PAUSE_S, PAUSE_MAX_S, PAUSE_TIMES = 1.0, 60.0, 10


class Sink(Protocol):
    """What a form is to whoever exports."""

    bookmark: ExportBookmark
    tally: ExportTally

    def write(self, look: RunLook) -> None:
        """Everything new of a look; it is out when this returns."""

    def close(self) -> None:
        """Let others write."""


@dataclass(frozen=True)
class Following:
    """How long a run is followed, and how to wait."""

    #: Seconds without a sign of the run after which it is taken for dead.
    quiet_max_s: float = 600.0
    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic


def open_sink(target: ExportTarget, run: Path, headers: Mapping[str, str]) -> Sink:
    """What writes to a target; ``headers`` go with requests."""
    if target.kind == "tensorboard":
        return TensorboardSink(target.place, run)
    if target.kind == "parquet":
        return ParquetSink(target.place, run)
    if target.kind == "perfetto":
        return PerfettoSink(target.place, run)
    return OtlpSink(Receiver(target.place, headers), run)


def export_run(run: Path, sink: Sink, following: Following | None = None) -> bool:
    """Write what a run has, or follow it until it has ended; whether it had, as far as that is known."""
    if following is None:
        look = look_at(run, sink.bookmark)
        sink.write(look)
        return look.is_over
    signature, seen, pause_s = "", following.now(), 0.0
    while True:
        following.pause(pause_s)
        began = following.now()
        current = signature_of(run)
        is_quiet = current == signature and began - seen >= following.quiet_max_s
        if current != signature or is_quiet:
            look = look_at(run, sink.bookmark, is_given_up=is_quiet)
            sink.write(look)
            if look.is_over:
                return not is_quiet
            if current != signature:
                signature, seen = current, began
        pause_s = min(PAUSE_MAX_S, max(PAUSE_S, PAUSE_TIMES * (following.now() - began)))
