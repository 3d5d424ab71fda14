"""Answers about the hosts of a job: all of them as columns of runs, and then only what has moved. Moments are seconds of the job's clock."""

from typing import Literal, TypedDict


class HostJob(TypedDict):
    """A job of many hosts that can be looked at; ``length_s`` is null unless it is imagined and played."""

    name: str
    title: str
    phase: str
    hosts: int | None
    length_s: float | None


class HostJobList(TypedDict):
    """Jobs of many hosts, the newest first; others are ``left_out``."""

    jobs: list[HostJob]
    left_out: int


class TextRuns(TypedDict):
    """A column: each value as often as the number at its place says."""

    values: list[str]
    counts: list[int]


class NumberRuns(TypedDict):
    """The same of numbers; null where there is none."""

    values: list[float | None]
    counts: list[int]


class HostHead(TypedDict):
    """What is said of all hosts together. ``problem`` says why this is how it was, and not how it is; ``next_s`` when something happens
    next in a job that is played.
    """

    title: str
    at_s: float
    phase: str
    problem: str
    is_over: bool
    term: int
    leader: str
    voters: list[str]
    frozen: str
    lease_s: float
    heartbeat_s: float
    length_s: float | None
    speed: float
    next_s: float | None


class HostEventLine(TypedDict):
    """Something that happened; ``term`` is 0 where nobody wrote it down."""

    at_s: float
    kind: Literal["term", "host", "gang", "fault"]
    what: str
    term: int


class HostEvents(TypedDict):
    """The newest events, the newest last; ``mark`` tells whether there are others."""

    mark: str
    lines: list[HostEventLine]


class HostColumns(TypedDict):
    """All hosts by place. ``names`` has one on each line. ``rank_shift`` is the host rank less the place, ``due_s`` when the heartbeat of a
    late host was due, ``lease_end_s`` when the lease of a host that does not renew it ends.
    """

    count: int
    names: str
    racks: TextRuns
    states: TextRuns
    rank_shift: NumberRuns
    since_s: NumberRuns
    due_s: NumberRuns
    lease_end_s: NumberRuns


class HostBoard(TypedDict):
    """All hosts of a job at one moment."""

    job: str
    stamp: str
    head: HostHead
    hosts: HostColumns
    events: HostEvents


class MovedHosts(TypedDict):
    """Hosts that are different, by place."""

    places: list[int]
    states: list[str]
    ranks: list[int | None]
    since_s: list[float | None]
    due_s: list[float | None]
    lease_end_s: list[float | None]


class HostMoves(TypedDict):
    """What has changed since a stamp. Where hosts are others, or so many that all are less, ``moved`` is null: ask for the board again.
    ``events`` are null where they are the same.
    """

    stamp: str
    head: HostHead
    moved: MovedHosts | None
    events: HostEvents | None


class RankRow(TypedDict):
    """A rank of a host; what is not known is null."""

    worker: str
    state: str
    step: int | None
    phase: str | None
    cpu_percent: float | None
    rss_bytes: int | None


class HostDetail(TypedDict):
    """One host and what runs on it; ``problem`` says why nothing is known of that."""

    place: int
    name: str
    state: str
    rank: int | None
    rack: str
    address: str
    ranks: str
    part: str
    trouble: str
    rows: list[RankRow]
    problem: str
