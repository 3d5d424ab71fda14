"""The watcher of a job: started beside it where ``PENSTOCK_METRICS`` or ``alerts.toml`` asks for one. It outlives ranks and ends with the job."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ALERTS = Path("alerts.toml")


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether the job is to be watched."""
    return bool(environment.get("PENSTOCK_METRICS")) or ALERTS.is_file()


def check_alerts() -> None:
    """Refuse a file of alerts that is wrong before anything is started."""
    if ALERTS.is_file():
        from penstock.report.watch.alert_rules import read_rules

        read_rules(ALERTS)


def start_job_watcher(job: Path, until: int | None = None) -> None:
    """Start one, if it is asked for: until a process or the job has ended."""
    if not is_asked_for(os.environ):
        return
    command = [
        sys.executable,
        "-m",
        "penstock.report.watch",
        "--guard",
        "--job",
        str(job),
        "--beside",
        os.getcwd(),
    ]
    if address := os.environ.get("PENSTOCK_METRICS"):
        command += ["--serve", address]
    if until is not None:
        command += ["--until", str(until)]
    # A session of its own: Ctrl-C is for the job, which ends in order and the watcher with it.
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
    if until is not None:
        subprocess.Popen(command, **options)  # type: ignore[call-overload]
        return
    with (job / "watch.log").open("ab") as log:
        subprocess.Popen(command, stderr=log, **options)  # type: ignore[call-overload]
