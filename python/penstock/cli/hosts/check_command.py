"""``penstock hosts check``: are hosts fit to train, and who is not."""

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from penstock.cli.hosts.check_grid import figure_lines, finding_lines, grid_lines
from penstock.cli.hosts.check_job import check_by_run, check_here, check_job, gentle
from penstock.cli.hosts.host_choice import running_hosts_job
from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, in_encoding, print_json, print_text, say
from penstock.errors import CheckFailed, HealthError, UsageError
from penstock.process.exclusion.check_failures import remember
from penstock.process.exclusion.history import open_history
from penstock.process.health.examiner import CheckPlan
from penstock.process.health.facts.host_facts import Looks
from penstock.process.health.outliers import HOSTS_MIN
from penstock.process.health.report import CheckReport
from penstock.process.health.verdict import Verdict, has_verdict, judge
from penstock.process.job import units
from penstock.process.questions.host_sets import fold

check_app = command_app(
    "check",
    "Check whether hosts are fit to train: versions, clocks, disks, GPUs, speed, and the network in pairs.",
    examples=(
        "  penstock hosts check\n"
        "  penstock hosts check --hosts 'gpu[01-16]'\n"
        "  penstock hosts check --hostfile hosts.txt --for 60s --json\n"
        "  penstock hosts check train-3f2a\n"
        "  penstock hosts check train-3f2a --hosts gpu07\n"
        "  srun -N 16 penstock hosts check"
    ),
)

DEVICES = ("auto", "gpu", "cpu", "none")
LEAST_S, MOST_S = 4.0, 600.0


@dataclass(frozen=True, kw_only=True)
class Where:
    """Hosts of no job: how they are started."""

    hosts: Annotated[
        str | None, Parameter(help="Log in to these hosts by ssh; with a job, only these of its hosts.")
    ] = None
    hostfile: Annotated[str | None, Parameter(help="The same from a host file of mpirun.")] = None
    nnodes: Annotated[str | None, Parameter(help="Hosts that each start this command by themselves.")] = None
    node_rank: Annotated[str | None, Parameter(help="This host's number among them.")] = None
    rdzv_endpoint: Annotated[str | None, Parameter(help="HOST:PORT where hosts meet.")] = None
    rdzv_id: Annotated[str | None, Parameter(help="The same on each host.")] = None
    on: Annotated[str | None, Parameter(help="Rent the hosts, as in --on slurm --nnodes 16.")] = None
    queue: Annotated[str | None, Parameter(help="With --on: the queue.")] = None
    interface: Annotated[str | None, Parameter(help="The network interface between hosts.")] = None
    no_key: Annotated[bool, Parameter(negative=(), help="Join without a key.")] = False

    def words(self) -> list[str]:
        """As options of ``penstock run``."""
        named = {
            name.replace("_", "-"): value
            for name in (
                "hosts", "hostfile", "nnodes", "node_rank", "rdzv_endpoint", "rdzv_id", "on", "queue", "interface"
            )
            if (value := getattr(self, name)) is not None
        }  # fmt: skip
        words = [word for name, value in named.items() for word in (f"--{name}", value)]
        return [*words, *(["--no-key"] if self.no_key else [])]


@dataclass(frozen=True, kw_only=True)
class What:
    """What is looked at."""

    for_: Annotated[str, Parameter(name="--for", help="How long it may take.")] = "20s"
    device: Annotated[
        str, Parameter(help="What computes: auto (GPUs, else processors), gpu, cpu or none.")
    ] = "auto"
    directory: Annotated[
        list[Path],
        Parameter(help="Compare the files of this directory on all hosts; may be repeated.", negative=()),
    ] = field(default_factory=list)
    force: Annotated[
        bool, Parameter(negative=(), help="Measure devices, processors and disks although ranks use them.")
    ] = False
    host_history: Annotated[
        str | None, Parameter(help="Where failures of hosts are remembered; none: nowhere.")
    ] = None

    def plan(self) -> CheckPlan:
        """Checked once."""
        seconds = units.second_count(self.for_)
        if seconds is None or not LEAST_S <= seconds <= MOST_S:
            raise UsageError(f"--for must be {LEAST_S:.0f} to {MOST_S:.0f} s, got {self.for_}")
        if self.device not in DEVICES:
            raise UsageError(f"--device must be one of {', '.join(DEVICES)}, got {self.device}")
        places = tuple(dict.fromkeys((str(home()), "/tmp")))
        looks = Looks(places=places, directories=tuple(str(place.absolute()) for place in self.directory))
        return CheckPlan(looks, seconds, compute="" if self.device == "none" else self.device)


@check_app.default
def check(
    job: str | None = None,
    *,
    where: Annotated[Where | None, Parameter(name="*")] = None,
    what: Annotated[What | None, Parameter(name="*")] = None,
    json: Json = False,
) -> int:
    """Without arguments: this host, as figures. With a job: its hosts, while it trains. Else hosts are started as `penstock run` does it.

    Exit code 1 when a host is not fit. Fewer than 5 hosts give figures, and nobody is called slow. What a host itself shows (memory errors,
    a lost GPU, a wrong product, a slow host) is remembered: `penstock hosts excluded`.

    Parameters
    ----------
    job
        Name of a job that runs, or how it begins.
    """
    where, what = where or Where(), what or What()
    plan = what.plan()
    if job is not None:
        if [word for word in where.words() if word.startswith("--")] not in ([], ["--hosts"]):
            raise UsageError("a job has its hosts: only --hosts goes with one")
        chosen = running_hosts_job(job, "hosts check")
        report = check_job(chosen, where.hosts, plan if what.force else gentle(plan))
        return _show(report, what, json=json)
    if not where.words() and not _is_of_many():
        return _show(check_here(plan), what, json=json)
    collected, end, code = check_by_run(where.words(), plan)
    if collected is not None:
        return _show(collected, what, json=json)
    if end:
        say(f"note: this host was checked; host rank 0 shows what came of it ({end})")
        return 0 if end == "fit" else 1
    raise CheckFailed(reason=f"the job that checks them ended with code {code}")


def _is_of_many() -> bool:
    """Whether an engine has started this on several hosts."""
    import os

    from penstock.process.hosts.engine_environment import engine_facts

    facts = engine_facts(os.environ, hostname=os.uname().nodename, full_name="")
    return (facts.hosts or 1) > 1


def _show(report: CheckReport, what: What, *, json: bool) -> int:
    verdict = judge(report)
    if json:
        print_json(document(report, verdict))
    else:
        _print(report, verdict)
    history = open_history(home(), what.host_history)
    try:
        remembered = remember(history, report, verdict)
        if remembered:
            say(f"note: written into {history.place}: {', '.join(remembered)}")
    except HealthError as problem:
        say(f"note: {problem}")
    return 0 if verdict.is_well else 1


def _print(report: CheckReport, verdict: Verdict) -> None:
    width = shutil.get_terminal_size().columns
    is_one = len(verdict.grid) == 1
    if not is_one:
        for line in grid_lines(verdict, width):
            print_text(in_encoding(line))
    for line in [*finding_lines(verdict, width), *figure_lines(report)]:
        print_text(in_encoding(line))
    for look in report.hosts:
        facts = look.facts
        if is_one and facts is not None:
            about = [f"{name} {version}" for name, version in facts.versions.items()]
            print_text(in_encoding(f"versions: {', '.join(about)}"))
            gpus = [f"{gpu.name} ({gpu.uuid})" for gpu in facts.gpus.gpus]
            print_text(in_encoding(f"GPUs: {', '.join(gpus) or 'none'}"))
    sys.stdout.flush()
    unmeasured: dict[str, list[str]] = {}
    for look in report.hosts:
        if look.compute is not None and look.compute.unmeasured:
            unmeasured.setdefault(look.compute.unmeasured, []).append(look.name)
    for words, names in unmeasured.items():
        say(f"note: {fold(names)}: no product was measured: {words}")
    for note in report.notes:
        say(f"note: {note}")
    if not is_one and not has_verdict(report):
        say(f"note: fewer than {HOSTS_MIN} hosts: these are figures, and nobody is called slow")
    unfit = [verdict.names[host] for host in verdict.unfit]
    count = len(verdict.grid)
    words = f"not fit: {', '.join(unfit)}" if unfit else "all fit" if not verdict.remarks else "links are bad"
    say(f"{count} {'host' if count == 1 else 'hosts'} checked in {report.seconds:.1f} s · {words}")


def document(report: CheckReport, verdict: Verdict) -> dict[str, object]:
    """Everything, for other programs."""
    return {
        "hosts": [
            {
                **msgspec.to_builtins(look),
                "name": verdict.names[look.number],
                "checks": verdict.grid.get(look.number),
                "fit": look.number not in verdict.unfit,
            }
            for look in report.hosts
        ],
        "findings": [
            {"host": verdict.names[one.host], "check": one.check, "state": one.state, "words": one.words}
            for one in verdict.findings
        ],
        "meetings": msgspec.to_builtins(report.meetings),
        "remarks": verdict.remarks,
        "notes": report.notes,
        "has_verdict": has_verdict(report),
        "fit": verdict.is_well,
        "seconds": round(report.seconds, 3),
    }
