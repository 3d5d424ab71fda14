"""Answers about runs: what the report says, curves over steps, what happened when, and rank by step. A number that is not known is text."""

from typing import Literal, TypedDict

from penstock.view.wire.machine_answers import RecordingFile

#: ``unmeasured`` stands where nothing was.
Measured = int | float | str


class RunCause(TypedDict):
    """Something that costs time: ``line`` says it whole, ``next_step`` what to do about it."""

    kind: str
    cost_ns: int
    share: float | None
    line: str
    next_step: str


class RunDiagnosis(TypedDict):
    """The first line of the report, and every cause by cost; the first of them is the line where something is ``named``."""

    line: str
    verdict: Literal["named", "none", "abstains"]
    wall_ns: int
    causes: list[RunCause]


class RunSpeed(TypedDict):
    """Times of steps and tokens."""

    steps: int
    p50_ns: Measured
    p99_ns: Measured
    steps_per_s: Measured
    tokens: Measured
    tokens_per_s: Measured


class RunMfu(TypedDict):
    """MFU as a share, or why there is none."""

    value: Measured
    reason: str


class RunGoodput(TypedDict):
    """Shares of the time that did what it should."""

    runtime: Measured
    runtime_high: Measured
    scheduling: Measured
    program: Measured


class RunMemory(TypedDict):
    """The largest values of any rank, in bytes."""

    rss: Measured
    memory_peak: Measured
    memory_reserved: Measured
    allocator_retries: Measured


class AccountName(TypedDict):
    """An account or a part of a step, and what is in it."""

    name: str
    says: str


class LifeSum(TypedDict):
    """The ledger of one life over all ranks, or of several old ones together; ``parts`` are those of ``train``."""

    life: int
    last_life: int
    wall_ns: int
    accounts: dict[str, int]
    parts: dict[str, int]
    kept_steps: int
    lost_steps: int


class RunLedger(TypedDict):
    """Where device time went: sums over ranks, in all and by life."""

    wall_ns: int
    ranks: int
    accounts: dict[str, int]
    parts: dict[str, int]
    account_names: list[AccountName]
    part_names: list[AccountName]
    lives: list[LifeSum]


class RunIncident(TypedDict):
    """A death, restart or return, and its cost; ``step`` is null where it is not known."""

    kind: str
    life: int
    cause: str
    ranks: int
    device_ns: int
    accounts: dict[str, int]
    lost_steps: int
    step: int | None


class RunCheckpoint(TypedDict):
    """A checkpoint, how long training stood still for it, and when it was on disk."""

    step: int
    life: int
    at_s: float
    bytes: int | None
    written: int | None
    stall_ns: int | None
    durable_ns: int | None


class RunLife(TypedDict):
    """A life of the run: its first and last step, and how it ended, empty where nothing says."""

    life: int
    step: int | None
    last_step: int | None
    ranks: int
    began_s: float | None
    end: str


class RunSkip(TypedDict):
    """Steps that were left out, from ``first`` to before ``end``."""

    first: int
    end: int
    reason: str


class RunStall(TypedDict):
    """A long step, the part that was longer than usual, and the stack that was seen most often, innermost frame first."""

    step: int
    rank: int
    took_ns: int
    usual_ns: int
    part: str
    line: str
    stack: list[str]
    stack_seen: int
    stacks: int


class RunMarks(TypedDict):
    """What happened at which step."""

    lives: list[RunLife]
    incidents: list[RunIncident]
    checkpoints: list[RunCheckpoint]
    checkpoints_left_out: int
    skips: list[RunSkip]


class HeatColumn(TypedDict):
    """A column that can be shown as rank by step."""

    name: str
    unit: str


class RunState(TypedDict):
    """Whether a process of it is there, and a signature that changes when it has written something."""

    signature: str
    is_running: bool


#: A ``silent`` run neither runs here nor noted its end.
RunCondition = Literal["running", "ended", "failed", "silent"]


class RunSummary(TypedDict):
    """A run in a few numbers, those of ``penstock report --json``; ``line`` is the first line of the report."""

    name: str
    address: str
    state: RunCondition
    step: int | None
    loss: float | None
    ranks: int
    lives: int
    incidents: int
    line: str
    verdict: Literal["named", "none", "abstains"]
    wall_ns: int
    speed: RunSpeed
    mfu: RunMfu
    goodput: RunGoodput
    memory: RunMemory


class RunOverview(RunState):
    """A run as its page shows it; numbers are those of ``penstock report --json``."""

    state: RunCondition
    name: str
    address: str
    last_step: int | None
    ranks: list[int]
    diagnosis: RunDiagnosis
    speed: RunSpeed
    mfu: RunMfu
    goodput: RunGoodput
    memory: RunMemory
    ledger: RunLedger
    marks: RunMarks
    stalls: list[RunStall]
    columns: list[HeatColumn]
    faults: list[str]
    recordings: list[RecordingFile]
    recordings_left_out: int
    took_ms: int
    commands: list[str]


class CurveLine(TypedDict):
    """Values by bucket of steps, null where there are none; ``low`` and ``high`` where values of a bucket differ."""

    label: str
    values: list[float | None]
    low: list[float | None] | None
    high: list[float | None] | None
    not_finite: int


class RunCurve(TypedDict):
    """What one chart shows."""

    name: str
    title: str
    unit: Literal["ns", "bytes", "share", "rate", "number"]
    says: str
    lines: list[CurveLine]


class CurveSet(TypedDict):
    """All curves over the same buckets, each by its first step; exact where a bucket is one step."""

    first: int
    end: int
    steps: list[int]
    is_exact: bool
    curves: list[RunCurve]
    left_out: int


class HeatRow(TypedDict):
    """One rank."""

    rank: int
    values: list[float | None]


class HeatMap(TypedDict):
    """A column by rank and bucket of steps: the largest value of each."""

    column: str
    unit: str
    first: int
    end: int
    steps: list[int]
    ranks: list[HeatRow]
    low: float | None
    high: float | None


class ListedRun(TypedDict):
    """A run of a folder: its summary, or why there is none; neither where it was not read yet. ``fields`` are its configuration."""

    name: str
    address: str
    summary: RunSummary | None
    problem: str
    fields: dict[str, str]
    #: Names of its curves.
    curves: list[str]


class RunList(TypedDict):
    """The runs below a folder. Those that are ``pending`` are read when it is asked for again; ``left_out`` are not listed."""

    address: str
    folder: str
    runs: list[ListedRun]
    pending: int
    running: int
    left_out: int
    took_ms: int
