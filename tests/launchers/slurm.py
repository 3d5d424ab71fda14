"""A real Slurm of one node, with a controller and a daemon of its own, in one folder."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.process.jobs import wait_until

_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/daemon.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/daemon.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


_JOB_S = 120.0


def is_usable() -> bool:
    """Whether Slurm is installed, and we may start its daemons without a key for each machine, which takes root."""
    programs = ("slurmctld", "slurmd", "srun", "sbatch")
    return os.geteuid() == 0 and all(shutil.which(program, path=_PATH) for program in programs)


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Variables with which srun and sbatch find it. Everything it started is gone afterwards."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    conf = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    cpus = os.cpu_count() or 1
    ports = {"controller": free_port(), "daemon": free_port()}
    conf.write_text(_CONF.format(host=host, folder=folder, cpus=cpus, **ports))
    variables = {"SLURM_CONF": str(conf), "PATH": _PATH}
    daemons = [
        # In the foreground, so that they are ours to end.
        subprocess.Popen([program, "-D", *more], env={**os.environ, **variables}, stderr=subprocess.DEVNULL)
        for program, more in (("slurmctld", ["-c"]), ("slurmd", []))
    ]
    try:
        wait_until(lambda: "idle" in _said(["sinfo", "-h"], variables), "Slurm is ready", timeout_s=60)
        yield variables
    finally:
        _said(["scancel", "--user=root", "--signal=KILL"], variables)
        wait_until(lambda: not _said(["squeue", "-h"], variables), "all jobs are gone", timeout_s=60)
        for daemon in daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            daemon.wait(30)


def free_port() -> int:
    """A port of this machine that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def submit(script: str, folder: Path, variables: dict[str, str]) -> None:
    """Let a script of two tasks run to its end; jobs that are requeued need not wait the two minutes that Slurm gives them."""
    path = folder / "job.sh"
    over = folder / "over"
    path.write_text(f"#!/bin/bash\n{script}\ntouch {over}\n")
    words = [
        "sbatch",
        "--parsable",
        "--requeue",
        "-O",
        "-n",
        "2",
        "--open-mode=append",
        f"--output={folder}/job.log",
    ]
    number = _said([*words, str(path)], variables).strip()
    assert number.isdigit(), f"sbatch said {number!r}"

    def is_requeued() -> bool:
        return over.exists() or "BeginTime" in _said(["squeue", "-h", "-j", number, "-o", "%r"], variables)

    wait_until(is_requeued, f"the job is over or requeued: {path}", timeout_s=_JOB_S)
    if not over.exists():
        # Not in the second in which the daemon was told to forget the job: it would take the new one for the old.
        _said(["scontrol", "update", f"JobId={number}", "StartTime=now+2"], variables)
    wait_until(over.exists, f"the job is over: {path}", timeout_s=_JOB_S)


def _said(words: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
    return done.stdout
