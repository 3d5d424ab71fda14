"""Scanning on a Ray cluster: the same function as locally, as remote tasks, so the result has the same bytes.

Workers need to reach the files and the registry under the same places: a shared file system or an object store.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.errors import FileEmpty, PenstockError, UsageError
from penstock.formats.contract import Policy, RawFile
from penstock.registry.scan.scan import ScanProgress, ShardScan, Watch, scan_shard
from penstock.store import Store

_IN_FLIGHT_PER_CPU = 2
_RETRIES = 2

T = TypeVar("T")


def scan_with_ray(
    raws: list[RawFile], format_name: str, policy: Policy, registry: Store, watch: Watch | None
) -> list[ShardScan | FileEmpty]:
    """Scan every shard as a task; at most a few per processor are submitted at a time."""
    ray = _ray()
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call_quietly)
    shared = (format_name, policy, registry)
    in_flight_max = max(1, int(ray.cluster_resources().get("CPU", 1))) * _IN_FLIGHT_PER_CPU
    waiting = dict(enumerate(raws))
    running: dict[Any, int] = {}
    outcomes: dict[int, ShardScan | FileEmpty] = {}
    tell = _teller(raws, watch)
    # Every turn submits or finishes at least one task, and each task is submitted once.
    while waiting or running:
        while waiting and len(running) < in_flight_max:
            number = min(waiting)
            running[task.remote(_scan, (waiting.pop(number), shared))] = number
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            number = running.pop(reference)
            outcome = ray.get(reference)
            if isinstance(outcome, _Failure):
                for other in running:
                    ray.cancel(other)
                raise outcome.problem
            outcomes[number] = outcome
        tell(outcomes)
    return [outcomes[number] for number in range(len(raws))]


def map_with_ray(function: Callable[..., T], arguments: list[tuple[Any, ...]]) -> list[T]:
    """Call a function of ours with each set of arguments, on the cluster; results in order."""
    ray = _ray()
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call_quietly)
    outcomes = ray.get([task.remote(function, args) for args in arguments])
    for outcome in outcomes:
        if isinstance(outcome, _Failure):
            raise outcome.problem
    return list(outcomes)


def _call_quietly(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except PenstockError as problem:
        return _Failure(problem)


class _Failure:
    """An error of ours, carried as a value: Ray would wrap a raised one in its own type."""

    def __init__(self, problem: PenstockError) -> None:
        self.problem = problem


def _scan(raw: RawFile, shared: tuple[str, Policy, Store]) -> ShardScan | FileEmpty:
    return scan_shard(raw, *shared, lambda *_: None)


def _teller(raws: list[RawFile], watch: Watch | None) -> Any:
    total = sum(raw.size_bytes for raw in raws)

    def tell(outcomes: dict[int, ShardScan | FileEmpty]) -> None:
        if watch is not None:
            scans = [scan for scan in outcomes.values() if isinstance(scan, ShardScan)]
            done = sum(scan.shard.bytes for scan in scans)
            rows = sum(scan.shard.rows for scan in scans)
            watch(ScanProgress(len(outcomes), len(raws), min(done, total), total, rows))

    return tell


def _ray() -> Any:
    try:
        import ray
    except ImportError as reason:
        raise UsageError("the engine ray is not installed", hint="pip install 'penstock[ray]'") from reason
    if not ray.is_initialized():
        ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)
    return ray
