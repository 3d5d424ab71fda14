"""``penstock data bench``: how fast batches come, beside what the memory of this machine allows."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, say
from penstock.cli.progress import progress
from penstock.cli.registry_place import Place, open_registry
from penstock.data import Feed, Recipe
from penstock.data import open as open_feed
from penstock.data.feed.lane import parse_lane
from penstock.registry import Registry
from penstock.report.quantities import size as as_size

#: What bench shows of a feed's statistics as it is.
_ORDER_NUMBERS = (
    "plan_s",
    "read_s",
    "digest_s",
    "shards_per_batch",
    "shards_uniform",
    "epochs_by_source",
    "pack_recurrence",
)


bench_app = command_app(
    "bench",
    "Measure how fast a recipe's batches come, beside what this machine's memory allows.",
    examples="  penstock data bench recipe.toml\n  penstock data bench recipe.toml --lane 0/8 --seconds 20 --json",
)


@bench_app.default
def bench(
    recipe: Path,
    *,
    lane: Annotated[str, Parameter(help="Read as lane K of N, as K/N.")] = "0/1",
    seconds: Annotated[float, Parameter(help="How long to read.")] = 5.0,
    threads: Annotated[
        int | None, Parameter(help="Reading threads (default: one per core but one, at most 4).")
    ] = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Throughput, first batch, resume time, waits and memory; the limit is a plain copy of as many bytes.

    Parameters
    ----------
    recipe
        A recipe file (TOML).
    """
    loaded, opened = Recipe.load(recipe), open_registry(registry, recipe=recipe)
    with progress("preparing", "rows", quiet=json) as tell:
        begun = time.perf_counter()
        feed = open_feed(
            loaded,
            lane=parse_lane(lane),
            registry=opened,
            threads=threads,
            watch=lambda what, done, total: tell(done, total, what),
        )
        prepared_s = time.perf_counter() - begun
    with feed:
        figures = _measure(feed, seconds)
        figures |= {"prepare_s": prepared_s, "resume_s": _resume_time(loaded, opened, feed)}
    unit = "rows" if feed.plan.records else "tokens"
    if json:
        print_json(figures)
    else:
        print_facts(
            {
                f"{unit} per second": f"{figures[f'{unit}_per_s']:,.0f} ({as_size(figures['bytes_per_s'])}/s)",
                "limit (memory copy)": f"{as_size(figures['copy_bytes_per_s'])}/s, so {figures['bytes_per_s'] / figures['copy_bytes_per_s']:.2f} of it",
                "first batch": f"{figures['first_batch_s'] * 1e3:.1f} ms after {prepared_s * 1e3:.1f} ms of preparing",
                "resume": f"{figures['resume_s'] * 1e3:.1f} ms to the next batch, from a cursor",
                "wait p50, p99": f"{figures['wait_p50_s'] * 1e6:.0f} µs, {figures['wait_p99_s'] * 1e6:.0f} µs",
                "padding": f"{figures['padding_share']:.2%}",
                "time of threads": f"{figures['plan_s']:.2f} s planning, {figures['read_s']:.2f} s reading, {figures['digest_s']:.2f} s hashing",
                "shards per batch": f"{figures['shards_per_batch']:.1f}; a uniform draw would touch {figures['shards_uniform']:.1f}",
                "epochs read": _shown(figures["epochs_by_source"], ",.2f"),
                "packs that recur": _shown(figures["pack_recurrence"], ".1%"),
                "memory": as_size(figures["memory_bytes"]),
            }
        )
        say("the first epoch checks every byte; later ones are faster")
    return 0


def _shown(by_source: dict[str, float | None], form: str) -> str:
    """A number per source."""
    return ", ".join(f"{name} {'unknown' if n is None else format(n, form)}" for name, n in by_source.items())


def _measure(feed: Feed, seconds: float) -> dict[str, Any]:
    begun = time.perf_counter()
    next(feed)
    first_batch_s = time.perf_counter() - begun
    begun, batches = time.perf_counter(), 0
    while (took := time.perf_counter() - begun) < seconds:
        try:
            next(feed)
        except StopIteration:
            break
        batches += 1
    took = max(took, 1e-9)
    statistics = feed.statistics(recurrence=True)
    per_batch = statistics.bytes / max(1, statistics.batches)
    return {
        "batches": batches,
        "tokens_per_s": statistics.tokens / max(1, statistics.batches) * batches / took,
        "rows_per_s": statistics.rows / max(1, statistics.batches) * batches / took,
        "bytes_per_s": per_batch * batches / took,
        "copy_bytes_per_s": _copy_rate(),
        "first_batch_s": first_batch_s,
        "wait_p50_s": statistics.wait_p50_s,
        "wait_p99_s": statistics.wait_p99_s,
        "padding_share": statistics.padding_share,
        **{name: getattr(statistics, name) for name in _ORDER_NUMBERS},
        "memory_bytes": float(_private_bytes()),
    }


def _resume_time(recipe: Recipe, registry: Registry, feed: Feed) -> float:
    begun = time.perf_counter()
    try:
        with open_feed(recipe, lane=feed.lane, registry=registry, cursor=feed.cursor) as again:
            next(again)
    except StopIteration:
        pass
    return time.perf_counter() - begun


def _copy_rate() -> float:
    source = np.ones(64 << 20, np.uint8)
    target = np.empty_like(source)
    best = 0.0
    for _ in range(5):
        begun = time.perf_counter()
        np.copyto(target, source)
        best = max(best, source.nbytes / (time.perf_counter() - begun))
    return best


def _private_bytes() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) * 1024
