"""Scanning shards: in parallel, resumable, the same result wherever it runs.

``scan_shard`` is a pure function of the file and the policy whose outputs (index, copy, summary) go into the registry's
store, content-addressed. A registration that was killed finds the summaries of the shards it had finished under a key
made of the file's place and stamp, and goes on with the others. The local engine runs it in threads (the Rust scanners
release the GIL), the Ray engine as remote tasks; both give the same bytes.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from penstock import events
from penstock._rust import digest, digest_file
from penstock.errors import ObjectMissing, ScanCancelled, UsageError
from penstock.formats import format_named
from penstock.formats.contract import Policy, RawFile, Scanned
from penstock.registry.manifest import Companion, Field, Shard, Skipped
from penstock.store import Store

#: Part of the key of finished scans: raise it when scanning finds something else in the same bytes.
SCANNER = 1
ENGINES = ("local", "ray")


class ShardScan(msgspec.Struct, frozen=True):
    """What is known of a shard after scanning it."""

    shard: Shard
    schema: list[Field]
    skipped: list[Skipped]


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """How far a registration is."""

    shards_done: int
    shards: int
    bytes_done: int
    bytes: int
    rows_done: int


Watch = Callable[[ScanProgress], None]


def scan_all(
    raws: list[RawFile],
    format_name: str,
    policy: Policy,
    registry: Store,
    *,
    engine: str,
    watch: Watch | None,
) -> list[ShardScan]:
    """Scan every shard, in order of the files, with the chosen engine."""
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}", hint=f"known are {' and '.join(ENGINES)}")
    if engine == "ray":
        from penstock.registry.fanning import scan_with_ray

        return scan_with_ray(raws, format_name, policy, registry, watch)
    return _scan_locally(raws, format_name, policy, registry, watch)


def _scan_locally(
    raws: list[RawFile], format_name: str, policy: Policy, registry: Store, watch: Watch | None
) -> list[ShardScan]:
    counter = _Counter(raws, watch)
    workers = max(1, min(len(raws), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="penstock-scan") as pool:
        jobs = [pool.submit(_scan_counted, raw, format_name, policy, registry, counter) for raw in raws]
        try:
            wait(jobs, return_when=FIRST_EXCEPTION)
        finally:
            # After an error or Ctrl-C nothing new is begun; running scans notice at their next report.
            if any(job.done() and not job.cancelled() and job.exception() for job in jobs) or not all(
                map(Future.done, jobs)
            ):
                counter.stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
    problems = [problem for job in jobs if not job.cancelled() and (problem := job.exception()) is not None]
    for problem in sorted(problems, key=lambda problem: isinstance(problem, ScanCancelled)):
        raise problem
    return [job.result() for job in jobs]


def _scan_counted(
    raw: RawFile, format_name: str, policy: Policy, registry: Store, counter: "_Counter"
) -> ShardScan:
    found = scan_shard(raw, format_name, policy, registry, counter.report)
    counter.finish()
    return found


class _Counter:
    """Adds up the reports of parallel scans and tells whoever watches."""

    def __init__(self, raws: list[RawFile], watch: Watch | None) -> None:
        self._lock = threading.Lock()
        self._watch = watch
        self._shards = len(raws)
        self._bytes = sum(raw.size_bytes for raw in raws)
        self._done = [0, 0, 0]
        #: Set when the registration is over, well or not.
        self.stopped = threading.Event()

    def report(self, byte_count: int, row_count: int) -> None:
        """Some bytes and rows more; after a failure elsewhere, the way to stop."""
        if self.stopped.is_set():
            raise ScanCancelled(shard="a shard")
        self._add(0, byte_count, row_count)

    def finish(self) -> None:
        """A shard more."""
        self._add(1, 0, 0)

    def _add(self, *more: int) -> None:
        with self._lock:
            self._done = [had + new for had, new in zip(self._done, more, strict=True)]
            shards_done, bytes_done, rows_done = self._done
            if self._watch is not None:
                self._watch(
                    ScanProgress(
                        shards_done, self._shards, min(bytes_done, self._bytes), self._bytes, rows_done
                    )
                )


def scan_shard(
    raw: RawFile, format_name: str, policy: Policy, registry: Store, progress: Callable[[int, int], None]
) -> ShardScan:
    """Scan one shard, or find that it was scanned before; its index is in the registry afterwards."""
    key = f"scans/{_scan_key(raw, format_name, policy)}.json"
    finished = _finished(registry, key)
    if finished is not None:
        progress(raw.size_bytes, finished.shard.rows)
        return finished
    with (
        events.span("registry.scan", shard=raw.name, bytes=raw.size_bytes),
        tempfile.TemporaryDirectory(prefix="penstock-scan-", dir=work_folder(registry)) as folder,
    ):
        scanned = format_named(format_name).scan(raw, policy, Path(folder), progress)
        found = _keep(raw, scanned, registry)
    registry.put_if_absent(key, msgspec.json.encode(found))
    return found


def _scan_key(raw: RawFile, format_name: str, policy: Policy) -> str:
    members = [(member.name, member.stamp) for member in raw.members]
    parts = (SCANNER, raw.url, raw.stamp, members, format_name, asdict(policy))
    return digest(msgspec.json.encode(parts)).removeprefix("b3:")


def _finished(registry: Store, key: str) -> ShardScan | None:
    try:
        return msgspec.json.decode(registry.get(key), type=ShardScan)
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def work_folder(registry: Store) -> Path | None:
    """Beside the registry when it is a directory, so that outputs are moved there and not copied."""
    place = registry.local_path("work")
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    return place


def _keep(raw: RawFile, scanned: Scanned, registry: Store) -> ShardScan:
    index = put_object(registry, "objects", scanned.index)
    derived = derived_index = ""
    if scanned.derived is not None and scanned.derived_index is not None:
        derived = put_object(registry, "derived", scanned.derived)
        derived_index = put_object(registry, "objects", scanned.derived_index)
    shard = Shard(
        name=raw.name,
        bytes=scanned.bytes,
        digest=scanned.digest,
        rows=scanned.rows,
        index=index,
        derived=derived,
        derived_index=derived_index,
        companions=list(_companions(scanned)),
    )
    return ShardScan(
        shard=shard,
        schema=[Field(name=f.name, kind=f.kind, optional=f.optional) for f in scanned.schema],
        skipped=[
            Skipped(shard=raw.name, line=b.line, offset=b.offset, reason=b.reason) for b in scanned.skipped
        ],
    )


def _companions(scanned: Scanned) -> Iterator[Companion]:
    for file in scanned.companions:
        found = digest_file(file.path) if file.path is not None else digest(file.read(0, file.size_bytes))
        yield Companion(name=file.name, bytes=file.size_bytes, digest=found)


def put_object(registry: Store, prefix: str, file: Path) -> str:
    """Put a file under its digest; the digest."""
    name = digest_file(file)
    registry.put_file_if_absent(object_name(name, prefix), file)
    return name


def object_name(name: str, prefix: str = "objects") -> str:
    """Where an object with a digest is kept."""
    return f"{prefix}/{name.removeprefix('b3:')}"
