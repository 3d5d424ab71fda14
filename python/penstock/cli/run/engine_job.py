"""``penstock run --on``: hosts are rented for the job, shown while they are waited for, and given back."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.cli.escape import harmless
from penstock.cli.output import print_json
from penstock.cli.run.options import CommandLine
from penstock.cli.run.to_spec import job_of_command
from penstock.errors.engines import EngineError
from penstock.errors.root import UsageError
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocation import Allocator, EngineOption, HostRequest, HostStart
from penstock.process.engines.foreground import ForegroundJob, run_in_allocation
from penstock.process.engines.guard import Guard
from penstock.process.engines.kubernetes.allocator import KubernetesAllocator
from penstock.process.engines.kubernetes.manifest import POD_HOME, pod_stem
from penstock.process.engines.slurm import SlurmAllocator
from penstock.process.engines.slurm_script import batch_script, step_command
from penstock.process.exclusion.entry import EntryGuard, history_place
from penstock.process.exclusion.history import open_history
from penstock.process.hosts.host_key import VARIABLE as KEY_VARIABLE
from penstock.process.hosts.host_key import key_path, make_key
from penstock.process.hosts.join import host_sizes
from penstock.process.job import units
from penstock.process.job.launch import stem

ENGINES = ("slurm", "kubernetes", "ssh", "auto")
#: Those that hosts are rented from.
RENTING = ("slurm", "kubernetes")
#: What the hosts need not hear again.
OURS = frozenset(
    {"on", "queue", "time", "gpus_per_host", "with", "detach", "json", "dry_run", "nnodes", "spare_hosts"}
)
GPUS_MAX = 1024
_OPTION = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9-]*)(?:=(.*))?", re.DOTALL)


def renting_engine(words: CommandLine, environment: Mapping[str, str]) -> str:
    """The engine that hosts are rented from here; empty where this runs on them already, or ssh starts them."""
    on = words.values["on"]
    if on is None:
        for key in ("queue", "time", "gpus_per_host", "with"):
            if key in words.given:
                raise UsageError(f"--{key.replace('_', '-')} goes with --on", hint="as in --on slurm")
        return ""
    if on not in ENGINES:
        raise UsageError(
            f"--on must be one of {', '.join(ENGINES)}, got {on}",
            hint="of Ray the hosts are started by a script of yours, and join by themselves: see the guide",
        )
    if on not in RENTING and words.given & {"hosts", "hostfile"}:
        return ""
    if on == "ssh":
        raise UsageError("--on ssh needs --hosts or --hostfile")
    is_step = "SLURM_STEP_ID" in environment and "SLURM_NODEID" in environment
    if is_step or "JOB_COMPLETION_INDEX" in environment:
        return ""
    if on in RENTING:
        return str(on)
    if "SLURM_JOB_ID" in environment:
        return "slurm"
    raise UsageError("--on auto: this runs in no engine", hint="--on slurm, --on kubernetes, or --hosts a,b")


def run_on_engine(home: Path, words: CommandLine, engine: str) -> int:
    """Rent hosts, run the job, give the hosts back."""
    request = host_request(words, engine)
    if engine == "slurm" and str(words.values["ranks"]).isdigit() and words.values["file"] is None:
        # What is wrong with the job is said before anything is rented. Files of pods are in their image.
        job_of_command(words, many=request.all_hosts > 1)
    if engine == "slurm" and "SLURM_JOB_ID" in os.environ and not words.values["dry_run"]:
        return _run_inside(home, request, words)
    return (
        _run_kubernetes(home, request, words) if engine == "kubernetes" else _run_slurm(home, request, words)
    )


def _run_slurm(home: Path, request: HostRequest, words: CommandLine) -> int:
    slurm = SlurmAllocator()
    name = _stem(words)
    if words.values["dry_run"]:
        directory = home / files.FOLDER / name
        request = _without_excluded(home, request, slurm, words) if shutil.which("sinfo") else request
        script = batch_script(request, _start(home, directory, request, words), directory)
        _tell_notes(script.notes)
        sys.stdout.write(script.text)
        return 0
    slurm.check(request)
    request = _without_excluded(home, request, slurm, words)
    directory = files.new_directory(home, name)
    start = _start(home, directory, request, words)
    _tell_notes(batch_script(request, start, directory).notes)
    if start.variables[KEY_VARIABLE] == str(directory / files.KEY):
        make_key(directory / files.KEY)
    return _rent(slurm, request, start, directory, words)


def _run_kubernetes(home: Path, request: HostRequest, words: CommandLine) -> int:
    """Pods have a home of their own, and a key of their own: yours stays here."""
    guard = EntryGuard(open_history(home, history_place(words.values["host_history"], os.environ)), _tell)
    excluded = guard.all_excluded()
    for host, why in excluded.items():
        _tell(f"note: {host} is not asked for: {why}")
    request = replace(request, excluded=tuple(excluded))
    kubernetes = KubernetesAllocator.of_request(request)
    name = pod_stem(_stem(words))
    if words.values["dry_run"]:
        directory = home / files.FOLDER / name
        sys.stdout.write(kubernetes.preview(request, _pod_start(directory, request, words), directory))
        return 0
    kubernetes.check(request)
    directory = files.new_directory(home, name)
    make_key(directory / files.KEY)
    return _rent(kubernetes, request, _pod_start(directory, request, words), directory, words)


def _pod_start(directory: Path, request: HostRequest, words: CommandLine) -> HostStart:
    """Commands from outside find the job by the name of its allocation."""
    command = ["penstock", "run", "--name", directory.name, *_inner_words(request, words, {"name"})]
    variables = {"PENSTOCK_HOME": POD_HOME, KEY_VARIABLE: str(directory / files.KEY)}
    return HostStart(command=command, directory=Path.cwd(), variables=variables)


def _rent(
    engine: Allocator, request: HostRequest, start: HostStart, directory: Path, words: CommandLine
) -> int:
    with Guard(directory):
        allocation = engine.acquire(request, start, directory)
        if not words.values["detach"]:
            return ForegroundJob(engine, allocation, _tell).follow()
        if words.values["json"]:
            names = {"allocation": allocation.name, "engine": allocation.engine, "number": allocation.number}
            print_json({**names, "directory": str(directory)})
        else:
            sys.stdout.write(f"{allocation.name}\n")
            _tell(f"hint: `{engine.release_words(allocation)}` ends it")
        return 0


def _without_excluded(
    home: Path, request: HostRequest, slurm: SlurmAllocator, words: CommandLine
) -> HostRequest:
    """Hosts that failed are not asked for, as far as their names say so. Raises ``HostsExcluded`` where those are too many of all."""
    guard = EntryGuard(open_history(home, history_place(words.values["host_history"], os.environ)), _tell)
    try:
        nodes = slurm.nodes(request.queue)
    except EngineError as problem:
        _tell(f"note: {problem}; hosts are let in when they come, by what they are")
        return request
    excluded = guard.excluded_names(nodes)
    guard.check_number(excluded, len(nodes))
    for name, why in excluded.items():
        _tell(f"note: {name} is not asked for: {why}")
    return replace(request, excluded=tuple(excluded))


def host_request(words: CommandLine, engine: str) -> HostRequest:
    """What the options ask an engine for."""
    values = words.values
    hosts = host_sizes(values["nnodes"], values["sizes"]).most
    if not 0 <= values["gpus_per_host"] <= GPUS_MAX:
        raise UsageError(f"--gpus-per-host must be 0 to {GPUS_MAX}, got {values['gpus_per_host']}")
    if values["spare_hosts"] < 0:
        raise UsageError(f"--spare-hosts must be 0 or more, got {values['spare_hosts']}")
    for key in ("node_rank", "rdzv_endpoint", "standalone", "hosts", "hostfile"):
        if key in words.given and values[key]:
            raise UsageError(
                f"--{key.replace('_', '-')} and --on {engine} exclude each other",
                hint="the engine numbers the hosts, and they find each other",
            )
    if values["json"] and not values["detach"]:
        raise UsageError("--json goes with --detach; in the foreground stdout belongs to the ranks")
    return HostRequest(
        hosts=hosts,
        spares=values["spare_hosts"],
        gpus_per_host=values["gpus_per_host"],
        time_s=_time_s(values["time"]),
        queue=values["queue"] or "",
        own_options=[_own_option(text) for text in values["with"]],
    )


def _run_inside(home: Path, request: HostRequest, words: CommandLine) -> int:
    count = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    allocated = int(count) if count.isdigit() else 1
    if "nnodes" not in words.given:
        request = HostRequest(hosts=max(allocated - request.spares, 1), spares=request.spares)
    if request.all_hosts > allocated:
        raise UsageError(
            f"this allocation of Slurm has {allocated} hosts, and {request.all_hosts} are asked for",
            hint="--nnodes and --spare-hosts together are at most that many",
        )
    start = _start(home, home, request, words)
    if start.variables[KEY_VARIABLE] == str(home / files.KEY):
        make_key(home / files.KEY)
    os.environ.update(start.variables)
    return run_in_allocation(step_command(request.all_hosts, start), start.directory)


def _start(home: Path, directory: Path, request: HostRequest, words: CommandLine) -> HostStart:
    """The same command line on every host, without what is said to the engine."""
    key = key_path(home, os.environ)
    if not key.exists():
        key = directory / files.KEY
    command = [sys.executable, "-m", "penstock.cli.main", "run", *_inner_words(request, words)]
    variables = {"PENSTOCK_HOME": str(home.absolute()), KEY_VARIABLE: str(key.absolute())}
    return HostStart(command=command, directory=Path.cwd(), variables=variables)


def _inner_words(request: HostRequest, words: CommandLine, without: Set[str] = frozenset()) -> list[str]:
    """The options of the hosts' own `penstock run`, and the command."""
    inner = [word for name, parts in words.written if name not in OURS | without for word in parts]
    if request.all_hosts > 1:
        nnodes = words.values["nnodes"] if "nnodes" in words.given else str(request.hosts)
        inner += ["--nnodes", nnodes]
    if request.gpus_per_host and "ranks" not in words.given and words.values["file"] is None:
        _tell(f"note: --ranks {request.gpus_per_host}, one for each GPU of a host")
        inner += ["--ranks", str(request.gpus_per_host)]
    return [*inner, *(["--"] if words.apart else []), *words.command]


def _stem(words: CommandLine) -> str:
    """What an allocation is called after."""
    first = stem(words.command) if words.command else words.values["file"] or "job"
    name = words.values["name"] or first.removesuffix(".py").removesuffix(".toml").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]", "", name).strip(".-")[:40] or "job"


def _time_s(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = units.second_count(text)
    if not seconds:
        raise UsageError(f"--time must be a time above 0, as in 90m or 12h, got {text}")
    return seconds


def _own_option(text: str) -> EngineOption:
    match = _OPTION.fullmatch(text)
    if match is None:
        raise UsageError(f"--with must be NAME=VALUE or NAME, got {text}", hint="as in --with qos=high")
    return EngineOption(match[1], match[2])


def _tell_notes(notes: Sequence[Any]) -> None:
    for words in notes:
        _tell(f"warning: {words}")


def _tell(text: str) -> None:
    sys.stderr.write(f"{harmless(text)}\n")
    sys.stderr.flush()
