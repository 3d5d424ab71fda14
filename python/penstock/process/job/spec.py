"""What a job is: typed values that are checked once, and the ``job.json`` that the agent reads.

A job has roles, a role has ranks. Everything here is a frozen value; nothing reads the environment, the clock or a disk. What
makes no sense is refused when the value is made, with the role and the field.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.errors.process import JobInvalid
from penstock.errors.root import UsageError
from penstock.process.job.output import Output
from penstock.process.job.role_order import cycle

RANKS_MAX = 4096
#: More roles than anybody can look at.
ROLES_MAX = 256
KINDS = ("gang", "service", "task")
RESTARTS = ("one", "gang", "all")
PRESSURES = ("wait", "drop")
#: A preemption says nothing about the program, so its number hardly has to be limited.
PREEMPTIONS = 1000
#: Of a host that is lost the program knows nothing either, and hosts come and go; a job of one host loses none.
HOST_LOSSES = 100
#: What needed too much memory needs it again, mostly; two tries allow for a neighbour that took it.
MEMORY_RESTARTS_MAX = 2
#: What a rank that makes no steps has at least, where nobody chose a limit.
HANG_LEAST_S = 60.0
#: What one rank may be stopped alone.
STOPPED_S = 600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNT_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What each rank of a role needs for itself; held, so that jobs do not share by accident."""

    cpus: int = 0
    gpus: int = 0
    memory_bytes: int = 0
    ports: int = 0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How often a gang may be started again, by what ended it."""

    crash: int = 0
    memory: int = 0
    hang: int = 0
    preemption: int = 0
    #: Hosts that are lost, or do not begin, in a job of many hosts.
    host: int = HOST_LOSSES

    @classmethod
    def of(cls, restarts: int) -> "Budget":
        """What ``--restarts K`` means."""
        preemption = PREEMPTIONS if restarts > 0 else 0
        return cls(
            crash=restarts,
            memory=min(restarts, MEMORY_RESTARTS_MAX),
            hang=restarts,
            preemption=preemption,
        )


@dataclass(frozen=True, kw_only=True)
class Hang:
    """When silence is a hang. A worker that never reports a step is judged by its output only, and only when asked for."""

    #: So many times the learned time of a step.
    factor: float = 10.0
    #: Never sooner than this. Without a choice a minute, a worker that shows work has half an hour, and without restarts nothing is ended.
    least_s: float | None = None
    #: Without any output for so long, for workers that report no steps. 0: output is not looked at.
    silence_s: float = 0.0
    #: So long one worker alone may be stopped by a signal. 0: for ever.
    stopped_s: float = STOPPED_S

    @classmethod
    def of(
        cls,
        *,
        least_s: float | None = None,
        silence_s: float = 0.0,
        factor: float = 10.0,
        stopped_s: float = STOPPED_S,
    ) -> "Hang | None":
        """What ``--hang``, ``--silence`` and ``--stopped-limit`` mean: 0 is for never."""
        if least_s == silence_s == 0:
            return None
        # Who watches for silence only is not to be judged by steps.
        least_s = _COUNT_MAX if least_s == 0 else least_s
        return cls(factor=factor, least_s=least_s, silence_s=silence_s, stopped_s=stopped_s)

    def to_json(self) -> dict[str, Any]:
        """As the agent reads it."""
        return {
            "factor": self.factor,
            "least_ms": _ms(HANG_LEAST_S if self.least_s is None else self.least_s),
            "silence_ms": _ms(self.silence_s),
            "given": self.least_s is not None,
            "stopped_ms": _ms(self.stopped_s),
        }


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When a gang is given another life, and how long an end may take."""

    #: Who is started again when a worker fails: it alone, its gang, or the whole job.
    restart: str = "gang"
    budget: Budget = field(default_factory=Budget)
    #: Progress of so many steps fills the budget again. 0: never.
    refill_steps: int = 100
    #: Before the second restart in a row; doubled for each further one. The first comes at once.
    backoff_s: float = 1.0
    backoff_max_s: float = 30.0
    #: How often in a row the same failure may happen. 0: as often as it likes.
    same_failure_max: int = 2
    #: From SIGTERM to SIGKILL when somebody asks the job to stop.
    stop_grace_s: float = 10.0
    #: A rank in phase ``checkpoint`` may finish its save before it is stopped, within so long.
    save_grace_s: float = 300.0
    #: From SIGTERM to SIGKILL for ranks that lost a peer. Long enough to say something; there is nothing left to save without the peer,
    #: and taking a torch process apart in order costs more than restarting the gang.
    failure_grace_s: float = 0.5
    hang: Hang | None = field(default_factory=Hang)

    def to_json(self) -> dict[str, Any]:
        """As the agent reads it."""
        return {
            "restart": self.restart,
            "budget": dict(vars(self.budget)),
            "refill_steps": self.refill_steps,
            "backoff_ms": _ms(self.backoff_s),
            "backoff_max_ms": _ms(self.backoff_max_s),
            "same_failure_max": self.same_failure_max,
            "stop_grace_ms": _ms(self.stop_grace_s),
            "save_grace_ms": _ms(self.save_grace_s),
            "failure_grace_ms": _ms(self.failure_grace_s),
            "hang": None if self.hang is None else self.hang.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Role:
    """Ranks that run the same command."""

    command: Sequence[str]
    name: str = "rank"
    kind: str = "gang"
    ranks: int = 1
    #: The one host that it runs on in a job of many hosts, by its host rank; without one, all of them.
    host: int | None = None
    #: Roles that come before: tasks and gangs succeeded, services run.
    after: Sequence[str] = ()
    #: What differs from the environment of whoever starts the job, which is not written down.
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    #: Where rank 0 listens; without one, each life gets a free port.
    master_port: int | None = None
    slots: Slots = field(default_factory=Slots)
    #: Workers that are warm and wait for a place.
    spares: int = 0
    #: A terminal of its own instead of pipes.
    terminal: bool = False
    #: The rank that reads what is typed or piped into the launcher; the others read nothing.
    stdin: int | None = None
    policy: Policy = field(default_factory=Policy)
    #: Ranks whose output is kept from the terminal, by stream. Files have all of it.
    hidden: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: What is forked instead of executed, and why, or why not (``penstock.process.job.fork_choice``).
    zygote: Mapping[str, Any] | None = None
    zygote_why: str = ""

    def __post_init__(self) -> None:
        if not _ROLE.fullmatch(self.name):
            raise JobInvalid(
                role=self.name,
                field="name",
                reason="is not valid for a role",
                hint="a letter, then letters, digits, `_` and `-`, 32 at most",
            )
        if not self.command or not self.command[0]:
            raise JobInvalid(
                role=self.name, field="command", reason="is empty: there is no command to run", hint=_COMMAND
            )
        self._among("kind", self.kind, KINDS)
        self._among("restart", self.policy.restart, RESTARTS)
        self._between("ranks", self.ranks, 1, RANKS_MAX)
        self._between("spares", self.spares, 0, RANKS_MAX)
        if self.host is not None:
            self._between("host", self.host, 0, RANKS_MAX)
        if self.stdin is not None:
            self._between("stdin", self.stdin, 0, self.ranks - 1)
        if self.master_port is not None:
            self._between("master_port", self.master_port, 1, 65535)
        for name, value in vars(self.slots).items():
            self._between(f"slots.{name}", value, 0, 2**63 - 1 if name == "memory_bytes" else _COUNT_MAX)
        self._check_policy(self.policy)
        for name, text in self.environment.items():
            if not _VARIABLE.fullmatch(name) or "\0" in text:
                raise JobInvalid(
                    role=self.name,
                    field=f"environment.{name}",
                    reason="cannot be a variable of the environment",
                )

    def _check_policy(self, policy: Policy) -> None:
        for name, value in vars(policy.budget).items():
            self._between(f"budget.{name}", value or 0, 0, _COUNT_MAX)
        for name in (
            "refill_steps",
            "backoff_s",
            "backoff_max_s",
            "same_failure_max",
            "stop_grace_s",
            "save_grace_s",
            "failure_grace_s",
        ):
            self._between(name, getattr(policy, name), 0, _COUNT_MAX)
        if policy.hang is not None:
            self._between("hang.factor", policy.hang.factor, 1, 1e6)
            self._between("hang.least_s", policy.hang.least_s or 0, 0, _COUNT_MAX)
            self._between("hang.stopped_s", policy.hang.stopped_s, 0, _COUNT_MAX)
            self._between("hang.silence_s", policy.hang.silence_s, 0, _COUNT_MAX)

    def _between(self, name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            allowed = "must be 0 or more" if least == 0 and value < 0 else f"must be {least:g} to {most:g}"
            raise JobInvalid(role=self.name, field=name, reason=f"{allowed}, got {value:g}")

    def _among(self, name: str, value: str, known: Sequence[str]) -> None:
        if value not in known:
            raise JobInvalid(
                role=self.name, field=name, reason=f"must be one of {', '.join(known)}, got {value}"
            )

    def to_json(self) -> dict[str, Any]:
        """As the agent reads it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "command": list(self.command),
            "ranks": self.ranks,
            "host": self.host,
            "after": list(self.after),
            "environment": dict(self.environment),
            "directory": None if self.directory is None else str(self.directory),
            "master_port": self.master_port,
            "slots": dict(vars(self.slots)),
            "spares": self.spares,
            "terminal": self.terminal,
            "stdin": self.stdin,
            "zygote": None if self.zygote is None else dict(self.zygote),
            "zygote_why": self.zygote_why,
            "policy": self.policy.to_json(),
            "hidden": {stream: list(ranks) for stream, ranks in self.hidden.items()},
        }


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job as it was asked for."""

    roles: Sequence[Role]
    #: Beginning of its name; without one, what its first command says.
    name: str | None = None
    detached: bool = False
    colour: bool = False
    #: Whether workers get control groups, where that is allowed.
    cgroup: bool = True
    #: Whether the job gets a pid namespace of its own.
    isolate: bool = False
    #: Where commands run unless a role says otherwise.
    directory: Path
    #: The interpreter that looks into workers for ``penstock stacks``.
    python: Path | None = None
    #: Log files are cut at this size. 0: never.
    segment_bytes: int = 0
    #: How many such pieces of a stream are kept. 0: all.
    segments_kept: int = 0
    #: What happens to output that nobody takes: workers wait, or the terminal gets less of it.
    pressure: Literal["wait", "drop"] = "wait"

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise JobInvalid(
                field="name",
                reason=f"{self.name!r} cannot be the name of a job",
                hint="a letter or digit, then letters, digits, `.`, `_` and `-`, 64 at most",
            )
        # Hosts are counted by the ranks of the first role, and ranks of many hosts are found by that.
        object.__setattr__(self, "roles", sorted(self.roles, key=lambda role: role.host is not None))
        if not 1 <= len(self.roles) <= ROLES_MAX:
            raise JobInvalid(field="roles", reason=f"must be 1 to {ROLES_MAX}, got {len(self.roles)}")
        if self.pressure not in PRESSURES:
            raise JobInvalid(
                field="pressure", reason=f"must be one of {', '.join(PRESSURES)}, got {self.pressure}"
            )
        try:
            Output(segment_bytes=self.segment_bytes, segments_kept=self.segments_kept)
        except UsageError as problem:
            raise JobInvalid(
                field="segment_bytes", reason=f"is not valid: {problem}", hint=problem.hint
            ) from problem
        self._check_roles()

    def fit_hosts(self, hosts: int, *, elastic: bool = False) -> None:
        """Raise where a role is bound to a host that the job does not have, or may do without."""
        for role in self.roles:
            if role.host is None:
                continue
            if role.host >= hosts:
                last = "host 0 alone" if hosts == 1 else f"hosts 0 to {hosts - 1}"
                raise JobInvalid(
                    role=role.name, field="host", reason=f"is {role.host}, and the job has {last}"
                )
            if elastic:
                raise JobInvalid(
                    role=role.name,
                    field="host",
                    reason=f"is {role.host}, and a job of --nnodes MIN:MAX may go on without that host",
                    hint="give one number of hosts, and --spare-hosts",
                )

    def _check_roles(self) -> None:
        names = [role.name for role in self.roles]
        workers = sum(role.ranks for role in self.roles)
        if workers > RANKS_MAX:
            raise JobInvalid(field="roles", reason=f"have {workers} ranks together, {RANKS_MAX} at most")
        for role in self.roles:
            if names.count(role.name) > 1:
                raise JobInvalid(role=role.name, field="name", reason="is used twice")
            for before in role.after:
                if before == role.name:
                    raise JobInvalid(role=role.name, field="after", reason="names the role itself")
                if before not in names:
                    raise JobInvalid(
                        role=role.name,
                        field="after",
                        reason=f"names {before!r}, which is not a role of this job",
                        hint=f"roles are {', '.join(names)}",
                    )
        reading = [role.name for role in self.roles if role.stdin is not None]
        if len(reading) > 1:
            raise JobInvalid(role=reading[1], field="stdin", reason=f"is given to {reading[0]!r} already")
        if reading and self.detached:
            raise JobInvalid(
                role=reading[0],
                field="stdin",
                reason="belongs to the terminal, which a detached job does not have",
                hint="run the job in the foreground, or let it read a file",
            )
        circle = cycle({role.name: role.after for role in self.roles})
        if circle:
            raise JobInvalid(
                role=circle[0],
                field="after",
                reason=f"goes in a circle: {' after '.join(circle)}, so none of them could start",
            )

    def to_json(self, identity: str) -> dict[str, Any]:
        """The document that the agent reads."""
        return {
            "id": identity,
            "detached": self.detached,
            "colour": self.colour,
            "cgroup": self.cgroup,
            "isolate": self.isolate,
            "directory": str(self.directory),
            "python": None if self.python is None else str(self.python),
            "segment_bytes": self.segment_bytes,
            "segments_kept": self.segments_kept,
            "pressure": self.pressure,
            "roles": [role.to_json() for role in self.roles],
        }


_COMMAND = "put it after `--`, as in `-- python train.py`"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
