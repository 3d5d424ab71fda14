"""Looking at the workers of a job again and again: progress from their pulses, use of the machine from /proc.

Nothing asks the agent, so looking costs the job nothing and works while the agent is busy.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from penstock.process.job.catalogue import LOST, GangState, Job
from penstock.process.logs.reader import STREAMS, Segment, segments
from penstock.process.stacks.kernel import children, family
from penstock.process.watch.gpus import GpuUse, gpu_uses
from penstock.process.watch.pulse_file import Pulse, pulses_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
TAIL_BYTES = 4096


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment. What is not known is nothing, not 0."""

    role: str
    rank: int
    pid: int
    incarnation: int
    #: As the kernel has it, in one letter; in words how it ended, for one that did.
    state: str
    #: What keeps it from going on: held by output, stopped, traced or frozen.
    held: str | None = None
    step: int | None = None
    step_age_s: float | None = None
    step_s: float | None = None
    typical_s: float | None = None
    phase: str | None = None
    phase_age_s: float | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_bytes: int | None = None
    last_line: str = ""

    @property
    def worker(self) -> str:
        """As people call it."""
        return f"{self.role}-{self.rank}"

    @property
    def is_over(self) -> bool:
        """Whether its process has ended."""
        return len(self.state) > 1

    @property
    def steps_per_s(self) -> float | None:
        """At its usual speed."""
        return 1 / self.typical_s if self.typical_s else None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one moment."""

    job: str
    phase: str
    reason: str
    at: float
    age_s: float
    rows: list[Row]


class Watcher:
    """Remembers the last look, because shares of processors are differences."""

    def __init__(self, job: Job) -> None:
        self._job = job
        #: Processor time of each worker's family, and when.
        self._spent: dict[int, tuple[float, float]] = {}

    def look(self) -> Seen:
        """The job now. Shares of processors are known from the second look on."""
        phase, state = self._job.phase(), self._job.state()
        now_s = time.time()
        if state is None:
            return Seen(job=self._job.id, phase=phase, reason="", at=now_s, age_s=0.0, rows=[])
        pulses, below, gpus, logs = pulses_of(self._job), children(), gpu_uses(), segments(self._job)
        rows = [
            _row(gang, worker, pulses.get((gang.role, worker["rank"])), logs)
            for gang, worker in state.workers
        ]
        rows = [row if row.is_over else self._measured(row, family(row.pid, below), gpus) for row in rows]
        age_s = (state.ended_at or now_s) - state.started_at
        return Seen(
            job=state.job,
            phase=phase,
            reason=LOST if phase == "lost" else state.reason,
            at=now_s,
            age_s=age_s,
            rows=rows,
        )

    def _measured(self, row: Row, pids: list[int], gpus: dict[int, GpuUse]) -> Row:
        usages = [usage for usage in map(_usage, pids) if usage is not None]
        spent_s, at_s = sum(cpu for cpu, _ in usages), time.monotonic()
        before = self._spent.get(row.pid)
        self._spent[row.pid] = (spent_s, at_s)
        share = None
        if before is not None and at_s > before[1]:
            # A child that ended takes its time along, so the sum may shrink.
            share = max(0.0, (spent_s - before[0]) / (at_s - before[1]) * 100)
        own = [gpus[pid] for pid in pids if pid in gpus]
        return msgspec.structs.replace(
            row,
            cpu_percent=share,
            rss_bytes=sum(rss for _, rss in usages),
            gpu_percent=sum(use.percent for use in own) if own else None,
            gpu_bytes=sum(use.bytes for use in own) if own else None,
        )


def _row(gang: GangState, worker: dict[str, Any], pulse: Pulse | None, logs: dict[str, list[Segment]]) -> Row:
    name, incarnation = f"{gang.role}-{worker['rank']}", gang.incarnation or 0
    newest = [logs[log][-1].path for stream in STREAMS if logs.get(log := f"{name}.{stream}")]
    row = Row(
        role=gang.role,
        rank=worker["rank"],
        pid=worker["pid"],
        incarnation=incarnation,
        state=_state(worker["pid"]) if worker["exit"] is None else _ended(worker["exit"]),
        held=worker.get("held") if worker["exit"] is None else None,
        last_line=last_line(map(Path, newest)),
    )
    if pulse is None or pulse.incarnation != incarnation:
        return row
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return msgspec.structs.replace(
        row,
        step=pulse.step if pulse.steps else None,
        step_age_s=(now_ns - pulse.step_at_ns) / 1e9 if pulse.steps else None,
        step_s=pulse.step_ns / 1e9 or None,
        typical_s=pulse.typical_ns / 1e9 or None,
        phase=pulse.phase,
        phase_age_s=(now_ns - pulse.phase_since_ns) / 1e9,
    )


def last_line(paths: Iterable[Path]) -> str:
    """The last line that was written to any of these files."""
    newest: tuple[int, str] = (0, "")
    for path in paths:
        try:
            with path.open("rb") as file:
                about = os.fstat(file.fileno())
                file.seek(max(0, about.st_size - TAIL_BYTES))
                lines = file.read(TAIL_BYTES).decode(errors="replace").split("\n")
        except OSError:
            continue
        written = next((line for line in reversed(lines) if line.strip()), "")
        # A progress bar writes one line over and over.
        newest = max(newest, (about.st_mtime_ns if written else 0, written.rstrip("\r").rpartition("\r")[2]))
    return "".join(character for character in newest[1] if character.isprintable())


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else "gone"


def _usage(pid: int) -> tuple[float, int] | None:
    """Processor seconds and bytes of memory."""
    fields = _stat(pid)
    return ((int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE) if fields else None


def _ended(exit_status: object) -> str:
    about = exit_status if isinstance(exit_status, dict) else {}
    if about.get("signal"):
        return f"signal {about['signal']}"
    return f"exit {about.get('code')}"
