"""``penstock run``: a job, supervised. Little is imported here: the command's own start-up counts."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.job.home import home
from penstock.cli.run.job_watcher import check_alerts, is_asked_for, start_job_watcher
from penstock.cli.run.options import CommandLine, read
from penstock.cli.run.to_spec import check_beside_file, job_of_command, job_options, notes
from penstock.errors.root import UsageError
from penstock.process.job.launch import agent_path, furnish
from penstock.process.job.spec import JobSpec

if TYPE_CHECKING:
    from penstock.cli.run.many_hosts import SshHosts
    from penstock.process.hosts.join import Join

#: The allocation that this host belongs to, where an engine gave it (process/engines/allocation_directory).
ALLOCATION = "PENSTOCK_ALLOCATION"
#: Variables of engines that may mean several hosts.
ENGINES = ("SLURM_JOB_ID", "JOB_COMPLETION_INDEX")
#: Options about an engine that hosts are rented from.
ENGINE_KEYS = frozenset({"on", "queue", "time", "gpus_per_host", "with"})
#: Options that may.
HOSTS = frozenset({"hosts", "hostfile", "nnodes", "rdzv_endpoint", "master_addr", "node_rank"})


def quick(words: list[str]) -> int:
    """Run a command line whose first word was ``run``."""
    asked = read(words, os.environ)
    if asked.aside & {"--help", "-h"}:
        from penstock.cli.root import call

        return call(["run", "--help"])
    return start(asked)


def start(words: CommandLine) -> int:
    """Start what the words ask for; in the foreground this does not return."""
    values = words.values
    if words.given & ENGINE_KEYS:
        from penstock.cli.run.engine_job import renting_engine, run_on_engine

        engine = renting_engine(words, os.environ)
        if engine:
            return run_on_engine(home(), words, engine)
    if values["json"] and not (values["detach"] or values["dry_run"]):
        raise UsageError("--json goes with --detach; in the foreground stdout belongs to the ranks")
    hosts = _hosts(words)
    many = hosts is not None
    if values["file"] is None:
        spec = job_of_command(words, many=many)
    else:
        from penstock.process.job import jobfile

        check_beside_file(words)
        changes = [jobfile.change(text) for text in values["set"]]
        spec = jobfile.load(Path(values["file"]), changes, environment=os.environ, options=job_options(words))
    for note in notes(words, many=many):
        print(f"note: {note}", file=sys.stderr)
    if values["dry_run"]:
        from penstock.cli.run.dry_run import show

        return show(spec, json=values["json"], environment=os.environ)
    return _launch(spec, words, hosts)


def _hosts(words: CommandLine) -> "Join | SshHosts | None":
    """The hosts of a job of many. A job of this host alone loads nothing for it."""
    if not (words.given & HOSTS or any(name in os.environ for name in ENGINES)):
        return None
    from penstock.cli.run.many_hosts import hosts_asked

    return hosts_asked(words, os.environ)


def _launch(spec: JobSpec, words: CommandLine, hosts: "Join | SshHosts | None") -> int:
    check_alerts()
    logs = words.values["log_dir"]
    if hosts is None:
        spec.fit_hosts(1)
        directory = furnish(home(), spec, logs=None if logs is None else Path(logs), environment=os.environ)
    else:
        from penstock.process.hosts.join import Join

        if not isinstance(hosts, Join):
            from penstock.cli.run.ssh_job import run_by_ssh

            return run_by_ssh(home(), spec, hosts, words)
        from penstock.cli.run.many_hosts import furnish_join

        directory = furnish_join(home(), spec, hosts, words, os.environ)
    if ALLOCATION in os.environ:
        from penstock.process.engines.allocation_directory import tell_job

        tell_job(home() / "jobs" / directory.name, os.environ)
    call = [str(agent_path()), "launch", str(directory)]
    if is_asked_for(os.environ):
        os.environ["PENSTOCK_WATCHED"] = "1"
    if not spec.detached:
        start_job_watcher(directory, until=os.getpid())
        sys.stdout.flush()
        # The launcher takes this process over: who kills it, by its number or by Ctrl-C, ends the job.
        os.execv(call[0], call)  # noqa: S606 - a shell would stand between the person and the launcher
    import subprocess

    from penstock.cli.output import print_json, say

    code = subprocess.run(call, stdin=subprocess.DEVNULL, check=False).returncode
    if code == 0:
        start_job_watcher(directory)
    if code == 0 and words.values["json"]:
        print_json({"job": directory.name, "directory": str(directory)})
    elif code == 0:
        print(directory.name)
        say(
            f"hint: `penstock logs -f {directory.name}` shows its output, `penstock stop {directory.name}` ends it"
        )
    return code
