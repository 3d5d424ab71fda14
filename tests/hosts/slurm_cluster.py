"""A real Slurm over hosts made of namespaces: one controller and some compute hosts, each with a slurmd of its own.

``ip netns exec`` would hide the cgroup mounts that slurmd looks for; ``nsenter`` does not (``network_namespace``).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.network_namespace import HostWorld, NamespaceHost
from tests.process.jobs import wait_until

PATIENCE_S = 60.0
_CONF = """
ClusterName=hosts
SlurmctldHost={controller}({address})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir=/tmp/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdTimeout=300
KillWait=5
UnkillableStepTimeout=30
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class SlurmCluster:
    """The last host of the world is the controller; the others compute."""

    world: HostWorld
    folder: Path
    variables: dict[str, str]

    @property
    def controller(self) -> NamespaceHost:
        """Where commands are given."""
        return self.world.hosts[-1]

    @property
    def compute(self) -> list[NamespaceHost]:
        """Where jobs run."""
        return self.world.hosts[:-1]

    def start_slurmd(self, host: NamespaceHost) -> None:
        """Start the daemon of a compute host, and wait until jobs may run there."""
        output = self.folder / f"{host.name}.out"
        host.start(["slurmd", "-D", "-N", host.name], output=output, variables=self.variables)
        wait_until(
            lambda: (
                self.said("sinfo", "-h", "-n", host.name, "-o", "%T").strip()
                in ("idle", "allocated", "mixed")
            ),
            f"{host.name} is up",
            timeout_s=PATIENCE_S,
        )

    def said(self, *words: str) -> str:
        """What a command of Slurm says."""
        return self.controller.run(*words, variables=self.variables).stdout

    @contextmanager
    def job(self, script: str, *options: str, output: Path, nodes: int) -> Iterator[str]:
        """Submit a batch script over the first compute hosts; its number. Nothing is left of it afterwards."""
        path = output.with_suffix(".sh")
        path.write_text(f"#!/bin/bash\n{script}\n")
        usual = [
            "--parsable",
            "--open-mode=append",
            f"--nodelist={','.join(host.name for host in self.compute[:nodes])}",
            f"--output={output}",
            f"--chdir={self.folder}",
        ]
        done = self.controller.run("sbatch", *usual, *options, str(path), variables=self.variables)
        number = done.stdout.strip()
        assert number.isdigit(), done.stderr
        try:
            yield number
        finally:
            self.end(number)

    def state(self, job: str) -> str:
        """The state of a job, and its reason; empty when it is forgotten."""
        return self.said("squeue", "-h", "-j", job, "-o", "%T %r").strip()

    def end(self, job: str) -> None:
        """Cancel a job, and wait until nothing of it is left."""
        self.said("scancel", "--signal=KILL", "--full", job)
        self.said("scancel", job)
        wait_until(lambda: not self.state(job), f"job {job} is gone", timeout_s=PATIENCE_S)


@contextmanager
def slurm_cluster(folder: Path, hosts: int) -> Iterator[SlurmCluster]:
    """Everything that it started is gone afterwards."""
    (folder / "state").mkdir()
    with HostWorld(folder, hosts + 1) as world:
        controller = world.hosts[-1]
        cpus = os.cpu_count() or 1
        nodes = [
            f"NodeName={h.name} NodeAddr={h.address} CPUs={cpus} State=UNKNOWN" for h in world.hosts[:-1]
        ]
        conf = folder / "slurm.conf"
        conf.write_text(
            _CONF.format(
                controller=controller.name, address=controller.address, folder=folder, nodes="\n".join(nodes)
            )
        )
        names = "".join(f"{host.address} {host.name}\n" for host in world.hosts)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin"
        cluster = SlurmCluster(world, folder, {"SLURM_CONF": str(conf), "PATH": path})
        for host in world.hosts:
            host.run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
        daemon = controller.start(
            ["slurmctld", "-D", "-c"], output=folder / "controller.out", variables=cluster.variables
        )
        try:
            for host in cluster.compute:
                cluster.start_slurmd(host)
            yield cluster
        finally:
            for job in cluster.said("squeue", "-h", "-o", "%i").split():
                cluster.said("scancel", "--signal=KILL", "--full", job)
            daemon.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
