"""From the options of ``penstock run`` to the description of a job. The environment is read here and nowhere below."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.cli.run.options import HOSTS, JOB, CommandLine, misplaced
from penstock.errors.root import UsageError
from penstock.process.job import command as commands
from penstock.process.job import units
from penstock.process.job.spec import Budget, Hang, JobSpec, Policy, Role, Slots

#: Options of torchrun that change nothing here, with what is so instead.
NEEDLESS = {
    "monitor_interval": "the end of a rank is noticed at once",
    "start_method": "ranks are executed, or forked from a warm Python (--zygote)",
    "event_log_handler": "`penstock events JOB` tells what happened",
    "signals_to_handle": "SIGTERM, SIGINT, SIGHUP and SIGQUIT stop the job orderly",
    "log_line_prefix_template": "lines begin with [rank]",
    "numa_binding": "`--cpus N` gives each rank processors of its own",
}
#: The same for a job of one host.
NEEDLESS_ALONE = {
    "rdzv_backend": "the ranks of one machine meet through MASTER_PORT",
    "rdzv_conf": "the ranks of one machine meet through MASTER_PORT",
    "local_addr": "the ranks of one machine meet at 127.0.0.1",
    **dict.fromkeys(
        (
            "lease",
            "host_wait",
            "spare_hosts",
            "sizes",
            "replace_within",
            "state",
            "ship",
            "interface",
            "mixed",
            "no_key",
            "detach_after",
            "fanout",
        ),
        "the job has one host",
    ),
}
#: Options of torchrun that would change what ranks see or what is written, with what to do instead.
REFUSED = {
    "virtual_local_rank": "`--gpus 1` shows each rank one GPU of its own",
    "duplicate_stdout_filters": "`penstock logs JOB | grep …` finds lines in what every rank wrote",
    "duplicate_stderr_filters": "`penstock logs JOB | grep …` finds lines in what every rank wrote",
    "logs_specs": "logs are in the job's directory; --log-dir puts them elsewhere",
}
#: Options about hosts that torchrun has as well; they hold for a whole job, whatever its roles are.
JOINING = frozenset({"standalone", "rdzv_backend", "rdzv_conf", "master_addr", "master_port", "local_addr"})
#: So much of a script is looked through for the options that it knows.
SCRIPT_BYTES_MAX = 1 << 20
CAUSES = ("crash", "memory", "hang", "preemption", "host")


def notes(words: CommandLine, *, many: bool = False) -> list[str]:
    """What somebody asked for that is not needed, or that the command will get and not we. ``many``: the job has many hosts."""
    needless = [
        f"--{key.replace('_', '-')} is not needed: {why}"
        for key, why in (NEEDLESS if many else NEEDLESS | NEEDLESS_ALONE).items()
        if key in words.given and words.values[key] != _default(key)
    ]
    return needless + _late(words)


def _late(words: CommandLine) -> list[str]:
    """Options of ours behind the command, unless its text knows them."""
    late = misplaced(words)
    if not late:
        return []
    script = words.command[0]
    try:
        with open(os.path.join(words.values["directory"] or "", script), "rb") as file:
            text = file.read(SCRIPT_BYTES_MAX)
    except OSError:
        text = b""
    unknown = [
        word for word in late if not re.search(rb"--?" + re.escape(_bare(word)).encode() + rb"\b", text)
    ]
    return [
        f"{word} stands after {script}, so {script} gets it; for Penstock it stands before: penstock run {word} … {script}"
        for word in unknown
    ]


def _bare(word: str) -> str:
    return word.lstrip("-").partition("=")[0]


def _default(key: str) -> Any:
    from penstock.cli.run.options import OPTIONS

    return next(option.default for option in OPTIONS if option.key == key)


def job_of_command(words: CommandLine, *, many: bool = False) -> JobSpec:
    """A job of one role; ``many``: on many hosts, which meet elsewhere than its ranks."""
    values = words.values
    for key, hint in REFUSED.items():
        if values[key]:
            raise UsageError(f"--{key.replace('_', '-')} is not known here", hint=hint)
    if words.given & {"set"}:
        raise UsageError("--set changes fields of a job file", hint="give one with --file")
    if not many:
        commands.check_one_machine(values["nnodes"], values["node_rank"])
    name = values["name"] or (
        None if values["standalone"] or values["rdzv_id"] == "none" else values["rdzv_id"]
    )
    directory = Path.cwd() if values["directory"] is None else Path(values["directory"]).absolute()
    if not directory.is_dir():
        raise UsageError(f"--directory must exist, got {directory}")
    return JobSpec(
        roles=[_role(words, directory, many=many)],
        directory=directory,
        **{**job_options(words), "name": name},
    )


def job_options(words: CommandLine) -> dict[str, Any]:
    """Fields of the job that the command line sets, whether roles come from a command or from a file."""
    values = words.values
    fields = {
        "name": values["name"],
        "cgroup": values["cgroup"],
        "isolate": values["isolate"],
        "on_pressure": values["on_pressure"],
        "segment_bytes": _bytes("--segment-bytes", values["segment_bytes"]),
        "segments_kept": values["segments_kept"],
    }
    called = {"on_pressure": "pressure"}
    return {
        **{called.get(key, key): value for key, value in fields.items() if key in words.given},
        "detached": values["detach"],
        "colour": not values["detach"] and sys.stdout.isatty() and "NO_COLOR" not in os.environ,
        "python": Path(sys.executable) if sys.executable else None,
    }


def check_beside_file(words: CommandLine) -> None:
    """A job file says what runs; the command line only what holds for the whole job."""
    if words.command:
        raise UsageError(f"--file and a command ({words.command[0]}) exclude each other")
    known = {option.key for option in (*JOB, *HOSTS)} | JOINING
    for key in sorted(words.given - known):
        raise UsageError(
            f"--{key.replace('_', '-')} goes with a command",
            hint=f"in a job file it belongs to a role: --set roles.NAME.{key}=…",
        )


def _has_files(words: CommandLine, directory: Path) -> bool:
    """Whether files of the command can be looked for: a host that joins may get them with a directory from another."""
    shipped = words.values["ship"]
    return shipped is None or directory.resolve().is_relative_to(Path(shipped).resolve())


def _role(words: CommandLine, directory: Path, *, many: bool) -> Role:
    values = words.values
    ranks = commands.rank_count(values["ranks"], visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    command = commands.executable(
        words.command,
        module=values["module"],
        direct=values["no_python"] and not values["run_path"],
        python=os.environ.get("PYTHON_EXEC"),
        directory=directory,
        is_here=_has_files(words, directory),
    )
    role = Role(
        name=values["role"],
        command=command,
        ranks=ranks,
        environment=dict(_variable(text) for text in values["environment"]),
        # Of many hosts these say where the hosts meet; each life of the ranks has a port of its own.
        master_port=None if many else _port(words),
        slots=Slots(
            cpus=values["cpus"],
            gpus=values["gpus"],
            memory_bytes=0 if values["memory"] is None else _bytes("--memory", values["memory"]),
            ports=values["ports"],
        ),
        spares=values["spares"],
        terminal=values["tty"],
        stdin=values["stdin"],
        policy=_policy(values),
        hidden=commands.hidden(
            max(ranks, 1),
            redirects=values["redirects"],
            tee=values["tee"],
            only=values["local_ranks_filter"],
        ),
    )
    preload = [name.strip() for text in values["preload"] for name in text.split(",") if name.strip()]
    return commands.warmed(role, values["zygote"], preload, directory=directory)


def _policy(values: Any) -> Policy:
    grace, failure_grace = values["grace"], values["failure_grace"]
    if values["shutdown_timeout"] is not None:
        grace = failure_grace = values["shutdown_timeout"]
    try:
        factor = float(values["hang_factor"])
    except ValueError:
        raise UsageError(f"--hang-factor {values['hang_factor']}: a number") from None
    hang = Hang.of(
        least_s=_hang_s(values["hang"]),
        silence_s=_seconds("--silence", values["silence"]),
        factor=factor,
        stopped_s=_seconds("--stopped-limit", values["stopped_limit"]),
    )
    return Policy(
        restart=values["restart"],
        budget=_budget(values["restarts"], values["budget"]),
        refill_steps=values["refill"],
        backoff_s=_seconds("--backoff", values["backoff"]),
        same_failure_max=values["same_failure"],
        stop_grace_s=_seconds("--grace", grace),
        save_grace_s=_seconds("--grace-save", values["grace_save"]),
        failure_grace_s=_seconds("--failure-grace", failure_grace),
        hang=hang,
    )


def _hang_s(text: str | None) -> float | None:
    """The limit that somebody chose; nothing for the default, which depends on restarts."""
    if text is None or text == "auto":
        return None
    return 0.0 if text == "off" else _seconds("--hang", text)


def _budget(restarts: int, text: str | None) -> Budget:
    counts: dict[str, int] = {}
    for part in (text or "").split(",") if text else ():
        cause, _, count = part.partition("=")
        if cause.strip() not in CAUSES or not count.strip().isdigit():
            raise UsageError(
                f"--budget {text}: a number for some of {', '.join(CAUSES)}",
                hint="as in --budget crash=3,memory=0",
            )
        counts[cause.strip()] = int(count)
    return replace(Budget.of(restarts), **counts)


def _port(words: CommandLine) -> int | None:
    values = words.values
    commands.check_local(values["master_addr"].strip("[]"), option="--master-addr")
    if values["master_port"] is not None:
        return values["master_port"] or None
    if values["standalone"] or not values["rdzv_endpoint"]:
        return None
    return commands.meeting_port(values["rdzv_endpoint"])


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(
            f"--environment {text}: NAME=VALUE", hint="variables of this shell are passed on anyway"
        )
    from penstock.events.redaction import is_secret_name

    if is_secret_name(name):
        raise UsageError(
            f"--environment {name}=…: a secret does not belong on a command line",
            hint=f"`export {name}=…` before; the environment is passed on and not written down",
        )
    return name, value


def _seconds(option: str, text: str) -> float:
    seconds = units.second_count(text)
    if seconds is None:
        raise UsageError(f"{option} must be a time, 0 or more, as in 10, 90s or 5m, got {text}")
    return seconds


def _bytes(option: str, text: str) -> int:
    size = units.byte_count(text)
    if size is None:
        raise UsageError(f"{option} must be a size, as in 512M or 8G, got {text}")
    return size
