"""What is seen of runs, as families of Prometheus. What is not known has no sample (O7)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.data.monitor import metrics as feed_metrics
from penstock.data.monitor.exposition import Family, Sample, exposition
from penstock.data.monitor.feed_page import FOLDER as PAGES
from penstock.data.monitor.feed_page import read_page
from penstock.report.watch.rank_rows import RankState
from penstock.report.watch.run_watch import Snapshot

_PAGES_MAX = 4096
FAMILIES: dict[str, Family] = {
    "penstock_run_step_seconds": Family("summary", "How long steps that count took on their slowest rank."),
    "penstock_run_steps": Family("gauge", "Steps that count and that all ranks have."),
    "penstock_run_newest_step": Family("gauge", "The highest step that a rank has finished."),
    "penstock_run_tokens": Family("gauge", "Tokens of the steps that count."),
    "penstock_run_tokens_per_second": Family(
        "gauge", "Tokens of the steps that count over the time that they took."
    ),
    "penstock_run_mfu_ratio": Family("gauge", "Model FLOPs utilisation of the steps that count."),
    "penstock_run_goodput_ratio": Family("gauge", "Time in steps that count over all time (ETTR)."),
    "penstock_run_lives": Family("gauge", "Lives of the run."),
    "penstock_run_incidents": Family("gauge", "Deaths, restarts and returns to earlier steps."),
    "penstock_run_incident_device_seconds": Family("gauge", "Device time that incidents cost."),
    "penstock_run_recent_tokens_per_second": Family("gauge", "Tokens a second of the newest steps alone."),
    "penstock_run_recent_mfu_ratio": Family("gauge", "Model FLOPs utilisation of the newest steps alone."),
    "penstock_run_figures_age_seconds": Family("gauge", "How old the figures of the run are."),
    "penstock_rank_life": Family("gauge", "The newest life of the rank."),
    "penstock_rank_running": Family(
        "gauge", "1 unless the rank has ended in order, or the run has a later life without it."
    ),
    "penstock_rank_step": Family("gauge", "The step that the rank has finished last."),
    "penstock_rank_step_seconds": Family("gauge", "How long that step took."),
    "penstock_rank_step_age_seconds": Family("gauge", "How long ago it ended."),
    "penstock_rank_memory_bytes": Family("gauge", "Memory of the process and of its device."),
    "penstock_rank_feed_ready_batches": Family("gauge", "Batches that were ready when the step began."),
    "penstock_rank_scalar": Family(
        "gauge", "The newest number that the program reported or logged, by name."
    ),
    "penstock_rank_not_finite_total": Family(
        "counter", "Such numbers that are not finite, since the watch began."
    ),
    "penstock_rank_lost_rows_total": Family("counter", "Steps of the life that could not be recorded."),
    "penstock_rank_damaged_pieces": Family("gauge", "Pieces of step files that cannot be read."),
    "penstock_alert_firing": Family("gauge", "1 while an alert lasts."),
    "penstock_alerts_fired_total": Family("counter", "How often an alert has fired."),
    "penstock_watch_refreshes_total": Family("counter", "How often the watcher has looked."),
    "penstock_watch_cpu_seconds_total": Family("counter", "Processor time of the watcher."),
} | feed_metrics.FAMILIES
_MEMORY = {"rss": "rss", "memory_peak": "peak", "memory_reserved": "reserved"}


def alert_samples(
    run: str, names: Sequence[str], firing: Sequence[str], fired: Mapping[str, int]
) -> Iterator[Sample]:
    """Which alerts of a run last, and how often each has fired."""
    for name in names:
        yield Sample("penstock_alert_firing", int(name in firing), {"run": run, "alert": name})
    for name in names:
        yield Sample("penstock_alerts_fired_total", fired.get(name, 0), {"run": run, "alert": name})


def run_samples(snapshot: Snapshot) -> Iterator[Sample]:
    """Of one run."""
    run = {"run": snapshot.name}
    yield from _figures(snapshot, run)
    for state in snapshot.ranks:
        yield from _rank(state, snapshot.ages_s[state.rank], {**run, "rank": str(state.rank)})
    newest = max((state.life for state in snapshot.ranks), default=0)
    yield from _pages(snapshot.path, run, newest)


def text_of(samples: Iterator[Sample]) -> str:
    """All of it, as Prometheus reads it."""
    return exposition(samples, FAMILIES)


def _figures(snapshot: Snapshot, run: dict[str, str]) -> Iterator[Sample]:
    figures, speed = snapshot.figures, snapshot.figures.speed
    for key, quantile in (("p50_ns", "0.5"), ("p99_ns", "0.99")):
        if isinstance(value := speed.get(key), int):
            yield Sample("penstock_run_step_seconds", value / 1e9, {**run, "quantile": quantile})
    rate = speed.get("steps_per_s")
    if isinstance(rate, float) and rate:
        yield Sample("penstock_run_step_seconds_sum", speed["steps"] / rate, run)
        yield Sample("penstock_run_step_seconds_count", speed["steps"], run)
    numbers = {
        "steps": speed.get("steps"),
        "newest_step": max((state.step for state in snapshot.ranks if state.step >= 0), default=None),
        "tokens": speed.get("tokens"),
        "tokens_per_second": speed.get("tokens_per_s"),
        "mfu_ratio": figures.mfu.get("value"),
        "goodput_ratio": figures.goodput.get("runtime"),
        "lives": figures.lives or None,
        "recent_tokens_per_second": snapshot.recent_tokens_per_s,
        "recent_mfu_ratio": snapshot.recent_mfu,
        "figures_age_seconds": time.monotonic() - figures.at if figures.at else None,
    }
    for name, number in numbers.items():
        if isinstance(number, int | float):
            yield Sample(f"penstock_run_{name}", number, run)
    for kind, (count, cost) in figures.incidents.items():
        yield Sample("penstock_run_incidents", count, {**run, "kind": kind})
        yield Sample("penstock_run_incident_device_seconds", cost / 1e9, {**run, "kind": kind})


def _rank(state: RankState, age_s: float, labels: dict[str, str]) -> Iterator[Sample]:
    yield Sample("penstock_rank_life", state.life, labels)
    yield Sample("penstock_rank_running", int(not state.is_over), labels)
    if state.step >= 0:
        yield Sample("penstock_rank_step", state.step, labels)
    if state.step_ns is not None:
        yield Sample("penstock_rank_step_seconds", state.step_ns / 1e9, labels)
        yield Sample("penstock_rank_step_age_seconds", age_s, labels)
    for column, kind in _MEMORY.items():
        if column in state.memory:
            yield Sample("penstock_rank_memory_bytes", state.memory[column], {**labels, "kind": kind})
    if state.feed_depth is not None:
        yield Sample("penstock_rank_feed_ready_batches", state.feed_depth, labels)
    for name, value in state.scalars.items():
        yield Sample("penstock_rank_scalar", value, {**labels, "name": name})
    yield Sample("penstock_rank_not_finite_total", state.not_finite, labels)
    yield Sample("penstock_rank_lost_rows_total", state.lost_rows, {**labels, "life": str(state.life)})
    yield Sample("penstock_rank_damaged_pieces", state.faults, labels)


def _pages(path: Path, run: dict[str, str], newest_life: int) -> Iterator[Sample]:
    """What feeds have counted. A rank that is dead has its page still, until there is a later life."""
    folder = path / PAGES
    try:
        names = sorted(entry for entry in folder.iterdir() if entry.suffix == ".page")[:_PAGES_MAX]
    except OSError:
        return
    for name in names:
        content = read_page(name)
        if content is None or content.life < newest_life:
            continue
        labels = {**run, "rank": str(content.rank), "life": str(content.life)}
        for metric, value, more in content.samples:
            if value is not None and metric.isidentifier() and metric.startswith("penstock_"):
                yield Sample(
                    metric, value, {**labels, **{key: more[key] for key in more if key.isidentifier()}}
                )
