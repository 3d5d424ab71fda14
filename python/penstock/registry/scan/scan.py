"""Scanning shards: in parallel, resumable, the same result wherever it runs.

``scan_shard`` is a pure function of the file and the policy whose outputs (index, copy, summary) go into the registry's
store, content-addressed. A registration that was killed finds the summaries of the shards it had finished under a key
made of the file's place and stamp, and goes on with the others. The local engine runs it in threads (the Rust scanners
release the GIL), the Ray engine as remote tasks; both give the same bytes.

What is kept of a scan has no names: the same file has another name below every other root. Names are put in when a scan is
used, so what was registered before cannot change what is registered now.
"""

import os
import posixpath
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock import events
from penstock._rust import digest, digest_file
from penstock.errors import (
    BadRow,
    DataError,
    FileEmpty,
    ObjectMissing,
    ScanCancelled,
    StoreError,
    TooManyBadRows,
    UsageError,
)
from penstock.formats import format_named
from penstock.formats.contract import Policy, RawFile, Scanned
from penstock.formats.detection import refuse_foreign
from penstock.formats.pointer import refuse_pointers
from penstock.registry.manifest import Companion, Field, Shard, Skipped
from penstock.registry.scan.change import refuse_changed
from penstock.registry.scan.work_folder import work_folder
from penstock.store import Store

#: Part of the key of finished scans: raise it when scanning finds something else in the same bytes.
SCANNER = 3
ENGINES = ("local", "ray")


class ShardScan(msgspec.Struct, frozen=True):
    """What is known of a shard after scanning it."""

    shard: Shard
    schema: list[Field]
    skipped: list[Skipped]
    #: Lines of a text without anything on them.
    blank_lines: int = 0
    #: What else people should know of it.
    notes: list[str] = []

    def without_names(self) -> "ShardScan":
        """As it is kept: companions by their way from the shard's folder."""
        folder = posixpath.dirname(self.shard.name)
        return self._renamed("", lambda name: posixpath.relpath(name, folder or "."))

    def named(self, name: str) -> "ShardScan":
        """A scan that was kept, of the shard that has this name now."""
        folder = posixpath.dirname(name)
        return self._renamed(name, lambda way: posixpath.normpath(posixpath.join(folder, way)))

    def _renamed(self, name: str, companion_name: Callable[[str], str]) -> "ShardScan":
        replace = msgspec.structs.replace
        companions = [
            replace(companion, name=companion_name(companion.name)) for companion in self.shard.companions
        ]
        return replace(
            self,
            shard=replace(self.shard, name=name, companions=companions),
            skipped=[replace(bad, shard=name) for bad in self.skipped],
        )


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
) -> list[ShardScan | FileEmpty]:
    """Scan every shard, in order of the files, with the chosen engine; a shard without rows is an error only if the caller says so."""
    if engine not in ENGINES:
        raise UsageError(f"engine must be {' or '.join(ENGINES)}, got {engine!r:.50}")
    if engine == "ray":
        from penstock.registry.scan.ray_engine import scan_with_ray

        return scan_with_ray(raws, format_name, policy, registry, watch)
    return _scan_locally(raws, format_name, policy, registry, watch)


def _scan_locally(
    raws: list[RawFile], format_name: str, policy: Policy, registry: Store, watch: Watch | None
) -> list[ShardScan | FileEmpty]:
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
) -> ShardScan | FileEmpty:
    outcome = scan_shard(raw, format_name, policy, registry, counter.report)
    counter.finish()
    return outcome


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
) -> ShardScan | FileEmpty:
    """Scan one shard, or find that it was scanned before; its index is in the registry afterwards."""
    key = f"scans/{_scan_key(raw, format_name, policy)}.json"
    finished = _finished(registry, key)
    if finished is not None:
        progress(raw.size_bytes, finished.shard.rows)
        return finished.named(raw.name)
    with (
        events.span("registry.scan", shard=raw.name, bytes=raw.size_bytes),
        work_folder(registry, "scan") as folder,
    ):
        try:
            refuse_pointers(raw)
            scanned = format_named(format_name).scan(raw, policy, folder, progress)
        except FileEmpty as empty:
            refuse_changed(raw)
            return empty
        except (DataError, StoreError) as problem:
            # Whatever is wrong with a file that is being written is no news about it.
            refuse_changed(raw, problem)
            if isinstance(problem, BadRow | TooManyBadRows):
                refuse_foreign(raw, format_name, problem)
            raise
        refuse_changed(raw, scanned=scanned)
        scan = _keep(raw, scanned, registry)
    registry.put_if_absent(key, msgspec.json.encode(scan.without_names()))
    return scan


def _scan_key(raw: RawFile, format_name: str, policy: Policy) -> str:
    members = [(member.name, member.stamp) for member in raw.members]
    parts = (SCANNER, raw.url, raw.stamp, members, format_name, policy.key())
    return digest(msgspec.json.encode(parts)).removeprefix("b3:")


def _finished(registry: Store, key: str) -> ShardScan | None:
    try:
        return msgspec.json.decode(registry.get(key), type=ShardScan)
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        return None


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
        blank_lines=scanned.blank_lines,
        notes=scanned.notes,
    )


def _companions(scanned: Scanned) -> Iterator[Companion]:
    for file in scanned.companions:
        file_digest = (
            digest_file(file.path) if file.path is not None else digest(file.read(0, file.size_bytes))
        )
        yield Companion(name=file.name, bytes=file.size_bytes, digest=file_digest)


def put_object(registry: Store, prefix: str, file: Path) -> str:
    """Put a file under its digest; the digest."""
    name = digest_file(file)
    registry.put_file_if_absent(object_name(name, prefix), file)
    return name


def object_name(name: str, prefix: str = "objects") -> str:
    """Where an object with a digest is kept."""
    return f"{prefix}/{name.removeprefix('b3:')}"


def with_rows(scans: list[ShardScan | FileEmpty]) -> list[ShardScan]:
    """Scans of shards that all have to have rows."""
    for scan in scans:
        if isinstance(scan, FileEmpty):
            raise scan
    return [scan for scan in scans if not isinstance(scan, FileEmpty)]
