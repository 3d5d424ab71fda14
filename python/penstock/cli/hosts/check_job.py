"""Ways to check hosts: this one alone, the hosts of a job that runs, and a job of its own that does nothing else."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import msgspec

from penstock.cli.escape import harmless
from penstock.errors import CheckFailed, PenstockError
from penstock.process.health.check_rank import ReportReader, listen
from penstock.process.health.examiner import CheckPlan, Examiner
from penstock.process.health.facts.compute_probe import compute
from penstock.process.health.facts.host_facts import host_facts
from penstock.process.health.facts.processor_rate import processor_rate
from penstock.process.health.report import CheckReport, HostLook
from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import ask_hosts
from penstock.process.questions.host_choice import hosts_of

TOKEN_BYTES = 32
#: Hosts that only meet the chosen ones, so that a bad pair has a culprit.
WITNESSES = 3
#: What the question may take beyond the check.
LATE_S = 5.0
#: Of a job whose ranks train: so much is sent at most, so the check takes little from them.
GENTLE_BYTES, GENTLE_S = 4 << 20, 0.05
PROGRAM = "penstock.process.health.check_rank"
_PDEATHSIG = 1


def check_here(plan: CheckPlan) -> CheckReport:
    """Check the host that we are on, alone."""
    begun = time.monotonic()
    facts = host_facts(plan.looks, os.environ)
    look = HostLook(0, os.uname().nodename, facts)
    if plan.processor:
        look.processor = processor_rate()
    if plan.compute:
        look.compute = compute(device=plan.compute, limit_s=plan.limit_s / 2)
    return CheckReport([look], seconds=time.monotonic() - begun)


def check_job(job: Job, names: str | None, plan: CheckPlan) -> CheckReport:
    """Hosts of a job that runs. Raises ``JobSilent``, and ``CheckFailed`` where this host cannot be reached by the others."""
    hosts = hosts_of(job)
    chosen = hosts.choose(names=names)
    free = [rank for rank, row in hosts.rows.items() if rank not in chosen and row.state == "here"]
    witnesses = free[:WITNESSES]
    address = str((job.host_file() or {})["address"])
    token = os.urandom(TOKEN_BYTES)
    everybody = sorted([*chosen, *witnesses])
    try:
        listener = listen(address, 0)
    except OSError as problem:
        raise CheckFailed(reason=f"{address} is not an address of this host: {problem.strerror}") from problem
    with listener:
        task = {
            "do": "check",
            "address": address,
            "port": listener.getsockname()[1],
            "token": token.hex(),
            "numbers": {hosts.rows[rank].name: rank for rank in everybody},
        }
        patience_s = plan.limit_s + LATE_S
        refused: list[str] = []

        def ask() -> None:
            try:
                refused.extend(
                    f"{one.why}"
                    for one in ask_hosts(job, everybody, task, patience_s=patience_s).account.refused
                )
            except PenstockError as problem:
                refused.append(str(problem))

        asking = threading.Thread(target=ask, name="penstock-check-question", daemon=True)
        asking.start()
        gentle = msgspec.structs.replace(plan, witnesses=tuple(witnesses))
        names_by_rank = {rank: hosts.rows[rank].name for rank in everybody}
        report = Examiner(listener, token, names_by_rank, gentle).collect()
        asking.join(LATE_S)
    return msgspec.structs.replace(report, notes=[*report.notes, *dict.fromkeys(refused)])


def gentle(plan: CheckPlan) -> CheckPlan:
    """A plan that takes nothing from ranks that train: no work on devices or processors, and little on the network."""
    looks = msgspec.structs.replace(plan.looks, measures_disk=False)
    return msgspec.structs.replace(
        plan, looks=looks, processor=False, compute="", pair_seconds=GENTLE_S, pair_bytes_max=GENTLE_BYTES
    )


def check_by_run(words: Sequence[str], plan: CheckPlan) -> tuple[CheckReport | None, str, int]:
    """Start a job whose ranks are the check; the report where it came here, how the check ended, and how the job did."""
    call = [sys.executable, "-m", "penstock.cli.main", "run", *words]
    call += ["--name", "check", "--ranks", "1", "--zygote", "never", "--no-check", "--mixed", "--module"]
    call += ["--", PROGRAM, msgspec.json.encode(plan).decode()]
    parent = os.getpid()

    def end_with_us() -> None:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    run = subprocess.Popen(call, stdout=subprocess.PIPE, preexec_fn=end_with_us)
    reader = ReportReader()
    assert run.stdout is not None
    try:
        for raw in run.stdout:
            line = raw.decode(errors="replace")
            if not reader.take(line):
                sys.stderr.write(harmless(line.rstrip("\n")) + "\n")
        code = run.wait()
    except KeyboardInterrupt:
        # The terminal has told it as well; it gives all hosts back before it ends.
        run.wait()
        raise
    return reader.report(), reader.end, code
