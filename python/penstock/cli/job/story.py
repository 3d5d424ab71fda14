"""``penstock events JOB``: what happened to a job and what was decided, in order."""

import sys
import time
from datetime import datetime

from penstock.cli.output import print_json, print_text
from penstock.process.job.catalogue import FINAL, Job
from penstock.report.job_story import Happening, Story

LOOK_S = 0.05


def show(job: Job, *, follow: bool, json: bool) -> int:
    """Print the journal; with ``follow``, on until the job is over."""
    story = Story(job)
    while True:
        # Asked before reading: what is written before the end is read after it.
        over = job.phase() in (*FINAL, "lost", "unreadable")
        for happening in story.more():
            if json:
                print_json(happening.entry)
            else:
                print_text(_line(happening))
        sys.stdout.flush()
        if over or not follow:
            return 0
        time.sleep(LOOK_S)


def _line(happening: Happening) -> str:
    clock = datetime.fromtimestamp(happening.at).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    life = "" if happening.incarnation is None else f"life {happening.incarnation}"
    return f"{clock}  {happening.who:<10}  {life:<7}  {happening.what}"
