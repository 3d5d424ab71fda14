"""Slurm as an engine: ``sbatch``, ``squeue``, ``scontrol``, ``scancel``, ``srun``, in their own words.

Everything is asked through Slurm's own commands, with a limit on each. A controller that does not answer is *silent*: nothing follows from
that, because hosts and ranks do not need it.
"""

import getpass
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.errors.engines import EngineMissing, EngineRefused, EngineSilent
from penstock.errors.process import HostsInvalid
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocation import Allocation, HostRequest, HostStart, JobOutput, Standing
from penstock.process.engines.output_files import OutputFiles
from penstock.process.engines.slurm_script import batch_script, plan
from penstock.process.hosts.host_names import expand

#: ``--overlap`` as it is needed here came with it.
OLDEST = (21, 8)
#: For one command of Slurm.
PATIENCE_S = 20.0
QUEUE_LISTED_MAX = 100_000
_SILENT = ("Unable to contact slurm controller", "Socket timed out", "Connection refused", "timed out")
_GONE = ("Invalid job id",)
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"})
_RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})


#: Reasons that no waiting changes.
HOPELESS = {
    "PartitionTimeLimit": "--time is more than the queue allows",
    "PartitionNodeLimit": "the queue does not give as many hosts",
    "PartitionConfig": "the queue cannot give this: too many hosts, or not of this kind",
    "BadConstraints": "no host of the cluster fits",
    "AssocMaxNodePerJobLimit": "your account may not have as many hosts",
    "QOSMaxNodePerJob": "the quality of service does not give as many hosts",
}


class SlurmAllocator:
    """Keeps ``Allocator`` with one batch job for an allocation."""

    title = "Slurm"

    def check(self, request: HostRequest) -> None:
        """Slurm is here and new enough, and its controller takes the request as it would when it is submitted."""
        said = self._run("sbatch", "--version")
        match = re.search(r"(\d+)\.(\d+)", said)
        version = (int(match[1]), int(match[2])) if match else (0, 0)
        if version < OLDEST:
            raise EngineMissing(
                engine=self.title,
                reason=f"its version is {said.strip()}, and {OLDEST[0]}.{OLDEST[1]:02} or newer is needed",
                hint="`srun penstock run …` in a batch script of your own works with older ones",
            )

    def preview(self, request: HostRequest, start: HostStart, directory: Path) -> str:
        """The batch script."""
        return batch_script(request, start, directory).text

    def acquire(self, request: HostRequest, start: HostStart, directory: Path) -> Allocation:
        """Submit the batch script."""
        script = batch_script(request, start, directory)
        files.write(directory, files.PLAN, json.dumps(plan(request, start)))
        files.write(directory, files.SCRIPT, script.text, mode=0o700)
        files.note(directory, "asked", engine="slurm", hosts=request.all_hosts, user=getpass.getuser())
        said = self._run("sbatch", "--parsable", str(directory / files.SCRIPT))
        number = said.strip().partition(";")[0]
        if not number.isdigit():
            raise EngineRefused(engine=self.title, words=said.strip() or "no number of a job")
        files.note(directory, "submitted", engine="slurm", number=number)
        return Allocation("slurm", directory.name, number, directory)

    def look(self, allocation: Allocation) -> Standing:
        """From the queue, or what Slurm still remembers."""
        try:
            said = self._run("squeue", "-h", "-j", allocation.number, "-t", "all", "-o", "%T|%r|%S|%N|%e")
        except EngineSilent as problem:
            return Standing("silent", words=problem.reason)
        except EngineRefused as problem:
            if any(words in problem.words for words in _GONE):
                return Standing("ended", words="Slurm does not know the job any more")
            return Standing("silent", words=problem.words)
        lines = said.strip().splitlines()
        if not lines:
            return Standing("ended", words="Slurm does not know the job any more")
        state, reason, begins, names, ends = [*lines[0].split("|"), "", "", "", ""][:5]
        if state in _WAITING:
            hint = HOPELESS.get(reason, "")
            return Standing("queued", words=reason, begins=_moment(begins), hopeless=hint)
        if state in _RUNNING:
            return Standing("granted", words=state, hosts=_names(names), ends=_moment(ends))
        return Standing("ended", words=state if reason in ("", "None") else f"{state} ({reason})")

    def ahead(self, allocation: Allocation) -> int | None:
        """How many jobs of the same queue stand before it, by priority; nothing where Slurm does not say."""
        try:
            queue = self._run("squeue", "-h", "-j", allocation.number, "-o", "%P").strip()
            listed = self._run("squeue", "-h", "-t", "PENDING", "-p", queue, "-S", "-p,i", "-o", "%i")
        except (EngineSilent, EngineRefused):
            return None
        numbers = listed.split()[:QUEUE_LISTED_MAX]
        return numbers.index(allocation.number) if allocation.number in numbers else None

    def reach(self, allocation: Allocation, hosts: Sequence[str], command: Sequence[str]) -> list[str]:
        """A step of one task beside the job's."""
        where = [f"--nodelist={hosts[0]}"] if hosts else []
        step = ["--nodes=1", "--ntasks=1", "--overlap", "--immediate=10", "--quiet", *where]
        return ["srun", f"--jobid={allocation.number}", *step, *command]

    def nodes(self, queue: str) -> list[str]:
        """Names of the nodes that a job could get."""
        words = ["sinfo", "-h", "-N", "-o", "%N", *(["-p", queue] if queue else [])]
        return list(dict.fromkeys(self._run(*words).split()))

    def output(self, allocation: Allocation) -> JobOutput:
        """Two files of the directory that all hosts see."""
        return OutputFiles(allocation.directory)

    def end_code(self, allocation: Allocation) -> int | None:
        """What the batch script's process wrote."""
        return files.end_code(allocation.directory)

    def job_name(self, allocation: Allocation) -> str:
        """As its hosts wrote it."""
        return files.job_name(allocation.directory)

    def own_command(self, *words: str) -> list[str]:
        """Hosts have the same Python in the same place."""
        return [sys.executable, "-m", "penstock.cli.main", *words]

    def tend(self, allocation: Allocation) -> Sequence[str]:
        """Nothing: hosts in reserve replace what is lost."""
        return ()

    def end_of(self, number: str) -> str:
        """When Slurm will end a job, in its own form."""
        return self._run("squeue", "-h", "-j", number, "-o", "%e").strip()

    def has_step(self, number: str, step: str) -> bool:
        """Whether tasks of a step still run."""
        try:
            said = self._run("squeue", "-h", "--steps", "-j", number, "-o", "%i")
        except EngineRefused:
            return False
        return f"{number}.{step}" in said.split()

    def release(self, allocation: Allocation) -> None:
        """Cancel the job; one that has ended is fine."""
        files.note(allocation.directory, "released", number=allocation.number)
        self.cancel(allocation.number)

    def cancel(self, number: str) -> None:
        """Take a job out of the queue, or end it."""
        try:
            self._run("scancel", number)
        except EngineRefused as problem:
            if not any(words in problem.words for words in _GONE):
                raise

    def release_named(self, name: str) -> None:
        """Cancel whatever was submitted by a name, where nobody knows its number: a launcher was killed just then."""
        self._run("scancel", f"--name={name}", f"--user={getpass.getuser()}")

    def release_words(self, allocation: Allocation) -> str:
        """``scancel``."""
        return f"scancel {allocation.number}"

    def forget(self, allocation: Allocation) -> None:
        """Nothing: Slurm forgets by itself."""

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE_S,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except FileNotFoundError:
            raise EngineMissing(
                engine=self.title,
                reason=f"there is no program called {words[0]} here",
                hint="run this where Slurm's commands are, usually a login node",
            ) from None
        except subprocess.TimeoutExpired:
            raise EngineSilent(
                engine=self.title, reason=f"{words[0]} did not answer in {PATIENCE_S:g} s"
            ) from None
        if done.returncode == 0:
            return done.stdout
        said = _told(done.stderr or done.stdout)
        if any(words in said for words in _SILENT):
            raise EngineSilent(engine=self.title, reason=said)
        raise EngineRefused(engine=self.title, words=said)


def _told(text: str) -> str:
    """The sentences of Slurm without the names of its programs."""
    lines = [
        re.sub(r"^(sbatch|squeue|scancel|srun|scontrol): (error: )?", "", line.strip())
        for line in text.splitlines()
    ]
    return "; ".join(line for line in lines if line) or "no word about why"


def _names(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand(text, option="hosts of Slurm")) if text.strip() else ()
    except HostsInvalid:
        return (text,)


def _moment(text: str) -> str:
    return "" if text in ("N/A", "NONE", "") else text
