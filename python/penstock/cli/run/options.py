"""The options of ``penstock run``: one table, and a reader of words that stops where the command begins.

A table and a reader of our own instead of the command-line library, for two reasons. What follows the script belongs to the script, with
or without ``--``, as people are used to from torchrun. And loading the library takes longer than all the time that a start may take; it
makes ``--help`` and completion from this table (``help_app.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from penstock.errors.root import UsageError

Kind = Literal["text", "count", "number", "flag", "switch", "many"]


class Option(NamedTuple):
    """One option. Its first name, with underscores, is its key."""

    names: tuple[str, ...]
    kind: Kind
    purpose: str
    default: Any = None
    #: What torchrun calls it, where it reads ``PET_…`` from the environment.
    torchrun: str | None = None
    #: Left out of ``--help``: for tests and for those who know why.
    hidden: bool = False

    @property
    def key(self) -> str:
        """How programs call it."""
        return self.names[0].lstrip("-").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        """Whether another word belongs to it."""
        return self.kind not in ("flag", "switch")


def _of_torchrun(name: str, purpose: str, *more: str, kind: Kind = "text", default: Any = None) -> Option:
    return Option((f"--{name}", *more), kind, purpose, default, name.replace("-", "_"))


JOB = (
    Option(("--file",), "text", "A job file (TOML) with several roles, instead of a command."),
    Option(("--set",), "many", "Change a field of the job file: --set roles.trainer.ranks=4."),
    Option(("--dry-run",), "flag", "Print what would run, and run nothing.", False),
    Option(("--name",), "text", "Beginning of the job's name (default: the script's)."),
    Option(("--detach",), "flag", "Return at once; the job lives until it ends.", False),
    Option(("--json",), "flag", "Machine-readable output on stdout; with --detach or --dry-run.", False),
    Option(("--isolate",), "flag", "A pid namespace for the job: nothing can survive it.", False),
    Option(("--cgroup",), "switch", "A control group for each rank, where that is allowed.", True),
    Option(
        ("--on-pressure", "--pressure"),
        "text",
        "When the terminal is slow: wait (ranks wait) or drop (it misses output; log files never do).",
        "wait",
    ),
    Option(
        ("--segment-bytes",),
        "text",
        "Begin a new log file after this many bytes, as in 256M; 0: never.",
        "0",
    ),
    Option(("--segments-kept",), "count", "How many files of each log to keep, the newest; 0: all.", 0),
)
GANG = (
    Option(
        ("--ranks", "--nproc-per-node"),
        "text",
        "How many processes run the command: a number, auto, gpu or cpu.",
        "1",
        "nproc_per_node",
    ),
    Option(("--module", "-m"), "flag", "The command is a Python module.", False, "module"),
    _of_torchrun(
        "no-python", "Execute the command itself, even if it ends in .py.", kind="flag", default=False
    ),
    _of_torchrun(
        "master-port", "MASTER_PORT of the ranks (default: a free one for each life).", kind="count"
    ),
    Option(
        ("--environment", "-e"), "many", "NAME=VALUE for the ranks; written into job.json, so no secrets."
    ),
    Option(("--directory",), "text", "Where the command runs (default: here)."),
    Option(
        ("--tty", "--terminal"),
        "flag",
        "A terminal for each rank: bars, colours; stderr joins stdout.",
        False,
    ),
    Option(
        ("--stdin",),
        "count",
        "The rank that reads what is typed or piped into this command; without it ranks read nothing.",
    ),
    Option(("--role",), "text", "Name of the ranks, in names of files and in ROLE_NAME.", "rank", "role"),
)
SLOTS = (
    Option(("--cpus",), "count", "Processors that each rank gets for itself.", 0),
    Option(("--gpus",), "count", "GPUs that each rank gets for itself.", 0),
    Option(("--memory",), "text", "Memory that each rank gets for itself, as in 8G."),
    Option(("--ports",), "count", "Ports that each rank gets for itself.", 0),
    Option(("--spares",), "count", "Further slots, for ranks whose own slot became doubtful.", 0),
)
RESTARTS = (
    Option(
        ("--restarts", "--max-restarts"),
        "count",
        "How often a failed gang is started again.",
        0,
        "max_restarts",
    ),
    Option(("--restart",), "text", "Who is started again: one, gang or all.", "gang"),
    Option(("--budget",), "text", "Restarts by cause: crash=3,memory=1,hang=3,preemption=9,host=9."),
    Option(("--refill",), "count", "Steps of progress that fill the budget again; 0: never.", 100),
    Option(
        ("--same-failure",),
        "count",
        "Give up after the same failure this many times in a row; 0: never.",
        2,
    ),
    Option(("--backoff",), "text", "Wait before the second restart in a row, doubled each time.", "1s"),
    Option(
        ("--grace",),
        "text",
        "Time from the first notice or signal to SIGKILL when the job is stopped.",
        "10s",
    ),
    Option(
        ("--grace-save",),
        "text",
        "Longest time that a rank in phase checkpoint gets to finish its save then.",
        "5m",
    ),
    Option(("--failure-grace",), "text", "The same for ranks that lost a peer.", "0.5s"),
    Option(
        ("--hang",),
        "text",
        "End a rank that pulses when it makes no step for this long and for ten times its usual step; 0: never."
        " Default: a minute, half an hour for a rank that shows work; without --restarts only a warning.",
    ),
    Option(("--hang-factor",), "text", "How many times its usual step a rank may take.", "10"),
    Option(
        ("--silence",),
        "text",
        "End a rank that does not pulse and writes nothing for this long; 0: never.",
        "0",
    ),
    Option(
        ("--stopped-limit",),
        "text",
        "How long one rank alone may be stopped by a signal before it is blamed; 0: for ever.",
        "10m",
    ),
)
WARM = (
    Option(("--zygote",), "text", "Fork ranks from a warm Python: auto, always or never.", "auto"),
    Option(
        ("--preload",),
        "many",
        "Modules that the warm Python imports (default: what the script seems to need).",
    ),
)
HOSTS = (
    Option(
        ("--hosts",),
        "text",
        "Start the job on these hosts by ssh: names, a pattern as gpu[01-64], or a host file.",
    ),
    Option(("--hostfile",), "text", "The same from a host file of mpirun: NAME slots=8 rack=a."),
    _of_torchrun("nnodes", "Hosts of a job whose hosts are each started by themselves.", default="1"),
    _of_torchrun(
        "node-rank", "This host's number among them; without it they count as they come.", default="0"
    ),
    _of_torchrun(
        "rdzv-endpoint",
        "HOST:PORT where hosts meet, the same on each; of one host, the port becomes MASTER_PORT.",
        default="",
    ),
    _of_torchrun("rdzv-id", "The same on each host; the beginning of the job's name.", default="none"),
    Option(
        ("--lease",),
        "text",
        "How long a host may run ranks that no other host hears of; 2 s at least.",
        "30s",
    ),
    Option(
        ("--host-wait",),
        "text",
        "How long to wait for hosts: at the start, and for another one when a host is lost.",
        "10m",
    ),
    Option(
        ("--spare-hosts",),
        "count",
        "Of the hosts, so many in reserve: one takes the place of a host that is lost.",
        0,
    ),
    Option(
        ("--sizes",),
        "text",
        "With --nnodes MIN:MAX: numbers of hosts that the job may go on with (default: those that divide MAX).",
    ),
    Option(
        ("--replace-within",),
        "text",
        "How long a lost host is asked for and, with --nnodes MIN:MAX, waited for before the job goes on with fewer.",
        "10m",
    ),
    Option(
        ("--grow",),
        "text",
        "With --nnodes MIN:MAX, when hosts are here again: restart (the next one), or saved (save and restart for it).",
        "restart",
    ),
    Option(
        ("--ship",),
        "text",
        "Send this directory to all hosts, and run ranks in a copy of it: git's files and what git does not ignore.",
    ),
    Option(
        ("--state",),
        "text",
        "A directory that all hosts see, or s3://…: two hosts survive the loss of one, and a second start continues.",
    ),
    Option(
        ("--interface",), "text", "The network interface between hosts (default: the one that leads there)."
    ),
    Option(
        ("--rack",),
        "text",
        "What this host shares with its neighbours, such as a switch (default: PENSTOCK_RACK, or what Slurm says).",
    ),
    Option(("--mixed",), "flag", "Let hosts with other versions of Penstock or Python join.", False),
    Option(("--no-key",), "flag", "Join without a key: everyone who reaches the endpoint can.", False),
    Option(
        ("--detach-after",),
        "text",
        "With --hosts: how long a broken connection to the launcher is forgiven.",
        "5m",
    ),
    Option(
        ("--check",),
        "switch",
        "Look at each host before it is used: GPUs, disk, memory for sharing; one that is not fit is not used.",
        True,
    ),
    Option(
        ("--host-history",),
        "text",
        "Where failures of hosts are remembered (default: hosts.jsonl in the home); none: nobody is excluded.",
    ),
    Option(
        ("--fold",),
        "switch",
        "With more than 8 --hosts: equal lines of ranks within 0.1 s are one line.",
        True,
    ),
    Option(("--fanout",), "count", "Hosts that one host listens to.", 64, hidden=True),
)
ENGINE = (
    Option(
        ("--on",),
        "text",
        "Rent the hosts from an engine: slurm; ssh, with --hosts; or auto, the engine that this runs in.",
    ),
    Option(("--gpus-per-host",), "count", "With --on: GPUs that each host must have.", 0),
    Option(("--time",), "text", "With --on: how long the hosts may be kept, as in 12h."),
    Option(("--queue",), "text", "With --on: the queue, which is Slurm's partition."),
    Option(
        ("--with",),
        "many",
        "With --on: an option of the engine itself, as in --with qos=high --with exclusive.",
    ),
)
TORCHRUN = (
    _of_torchrun(
        "standalone",
        "One host, whatever an engine says; its ranks meet at a free port.",
        kind="flag",
        default=False,
    ),
    _of_torchrun("rdzv-backend", "c10d or static; hosts need no server to meet.", default="static"),
    _of_torchrun("rdzv-conf", "is_host=1 and join_timeout=S count; the rest is not needed.", default=""),
    _of_torchrun(
        "master-addr", "With --node-rank: where host 0 is, as --rdzv-endpoint.", default="127.0.0.1"
    ),
    _of_torchrun("local-addr", "The address of this host, as the other hosts reach it.", default=""),
    _of_torchrun("monitor-interval", "Not needed: an end is noticed at once.", default=""),
    _of_torchrun("start-method", "Not needed; see --zygote.", default=""),
    _of_torchrun("run-path", "Python runs the script, as it always does.", kind="flag", default=False),
    _of_torchrun("log-dir", "Logs go into a directory of the job below this one."),
    _of_torchrun(
        "redirects", "Streams that are not shown: 1 stdout, 2 stderr, 3 both, or RANK:N,…", "-r", default="0"
    ),
    _of_torchrun("tee", "Streams that are shown although --redirects hides them.", "-t", default="0"),
    _of_torchrun("local-ranks-filter", "Show only these ranks, as in 0,2-3.", default=""),
    _of_torchrun("shutdown-timeout", "Seconds for --grace and --failure-grace together."),
    _of_torchrun("event-log-handler", "Not needed; see `penstock events`.", default=""),
    _of_torchrun(
        "signals-to-handle", "Not needed: SIGTERM, SIGINT, SIGHUP and SIGQUIT stop orderly.", default=""
    ),
    _of_torchrun("log-line-prefix-template", "Not needed: lines begin with [rank].", default=""),
    Option(("--numa-binding",), "text", "Not needed; see --cpus.", ""),
    _of_torchrun("virtual-local-rank", "Refused; see --gpus.", kind="flag", default=False),
    _of_torchrun("duplicate-stdout-filters", "Refused; see `penstock logs`.", default=""),
    _of_torchrun("duplicate-stderr-filters", "Refused; see `penstock logs`.", default=""),
    Option(("--logs-specs",), "text", "Refused; see `penstock logs`.", ""),
)
GROUPS = {
    "the gang": GANG,
    "the job": JOB,
    "slots": SLOTS,
    "restarts": RESTARTS,
    "warm start": WARM,
    "hosts": HOSTS,
    "engine": ENGINE,
    "of torchrun": TORCHRUN,
}
OPTIONS = tuple(option for group in GROUPS.values() for option in group)
_BY_NAME = {name: option for option in OPTIONS for name in option.names} | {
    f"--no-{option.names[0][2:]}": option for option in OPTIONS if option.kind == "switch"
}
#: Who writes one of these after the command may have meant it for us; most others are names that scripts have as well.
_MEANT = frozenset(
    name
    for option in OPTIONS
    if option.key
    in (
        "ranks",
        "restarts",
        "restart",
        "detach",
        "hang",
        "silence",
        "zygote",
        "isolate",
        "nnodes",
        "standalone",
    )
    for name in option.names
)
#: Answered elsewhere.
_ASIDE = ("--help", "-h", "--debug")


@dataclass(frozen=True)
class CommandLine:
    """A command line, taken apart."""

    #: A value for every option, by key.
    values: Mapping[str, Any]
    #: Keys that somebody chose, here or in the environment.
    given: frozenset[str]
    #: What follows our options.
    command: Sequence[str]
    #: ``--help`` or ``--debug``, before the command.
    aside: frozenset[str]
    #: Whether somebody wrote ``--`` before the command: what follows is meant for it.
    apart: bool = False
    #: Our options as they were written, each with its key.
    written: Sequence[tuple[str, Sequence[str]]] = ()


def read(words: Sequence[str], environment: Mapping[str, str]) -> CommandLine:
    """Take a command line apart; ``PET_…`` variables count like options, as for torchrun."""
    values: dict[str, Any] = {
        option.key: [] if option.kind == "many" else option.default for option in OPTIONS
    }
    given_keys: set[str] = set()
    for option in OPTIONS:
        text = environment.get(f"PET_{option.torchrun.upper()}") if option.torchrun else None
        if option.torchrun and text is not None:
            values[option.key] = _from_environment(option, f"PET_{option.torchrun.upper()}", text)
            given_keys.add(option.key)
    aside: set[str] = set()
    written: list[tuple[str, Sequence[str]]] = []
    rest = list(words)
    while rest and rest[0] != "--" and rest[0].startswith("-") and rest[0] != "-":
        before, word = list(rest), rest.pop(0)
        if word in _ASIDE:
            aside.add(word)
            continue
        name, attached = _split(word)
        option = _find(name)
        value = _value(option, name, attached, rest)
        values[option.key] = [*values[option.key], value] if option.kind == "many" else value
        given_keys.add(option.key)
        written.append((option.key, before[: len(before) - len(rest)]))
    apart = rest[:1] == ["--"]
    if apart:
        rest.pop(0)
    return CommandLine(values, frozenset(given_keys), rest, frozenset(aside), apart, written)


def misplaced(words: CommandLine) -> list[str]:
    """Options of ours that stand after the command, and so are the command's; as they were written."""
    if words.apart:
        return []
    names = [(word, _split(word)[0]) for word in words.command[1:] if word.startswith("--")]
    return [word for word, name in names if name in _MEANT]


def _split(word: str) -> tuple[str, str | None]:
    """Name and what is attached to it: ``--ranks=2``, ``-r3``."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name.replace("_", "-"), value if equals else None
    return word[:2], word[2:] or None


def _find(name: str) -> Option:
    if name in _BY_NAME:
        return _BY_NAME[name]
    # As torchrun's: any beginning that only one option has.
    begun = {_BY_NAME[known].key: _BY_NAME[known] for known in _BY_NAME if known.startswith(name)}
    if len(begun) == 1 and len(name) > 3:
        return next(iter(begun.values()))
    from difflib import get_close_matches

    close = sorted(known for known in _BY_NAME if len(name) > 3 and known.startswith(name))
    close = close or get_close_matches(name, list(_BY_NAME), n=1)
    hint = f"did you mean {' or '.join(close[:4])}?" if close else "`penstock run --help` shows the options"
    raise UsageError(f"unknown option {name}", hint=hint)


def _value(option: Option, name: str, attached: str | None, rest: list[str]) -> Any:
    if not option.takes_value:
        if attached is not None:
            raise UsageError(f"{name} takes no value, but got {attached!r}")
        return not (option.kind == "switch" and name.startswith("--no-"))
    if attached is None and (not rest or rest[0] == "--"):
        raise UsageError(f"{name} needs a value", hint=option.purpose)
    return _typed(option, name, rest.pop(0) if attached is None else attached)


def _typed(option: Option, name: str, text: str) -> Any:
    if option.kind != "count":
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, got {text}") from None


def _from_environment(option: Option, name: str, text: str) -> Any:
    if option.kind == "flag":
        if text not in ("0", "1"):
            raise UsageError(f"{name} in the environment must be 0 or 1, got {text}")
        return text == "1"
    return _typed(option, name, text)
