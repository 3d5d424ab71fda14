"""Runs: a training loop that survives any interruption, bit for bit; its journal, its records, its policies."""

from penstock.run.journal.journal import Entry, Journal
from penstock.run.journal.step_records import StepRecord, Whole
from penstock.run.loop import Run, Steps
from penstock.run.policies import Policy, Spike
from penstock.run.step.notices import EXIT_LEFT, EXIT_UNSAVED, Leave, Notice

__all__ = [
    "EXIT_LEFT",
    "EXIT_UNSAVED",
    "Entry",
    "Journal",
    "Leave",
    "Notice",
    "Policy",
    "Run",
    "Spike",
    "StepRecord",
    "Steps",
    "Whole",
]
