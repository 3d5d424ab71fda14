"""Runs: a training loop that survives any interruption, bit for bit; its journal, its records, its policies."""

from penstock.run.journal import Entry, Journal
from penstock.run.loop import Run, Steps
from penstock.run.notices import EXIT_LEFT, EXIT_UNSAVED, Leave, Notice
from penstock.run.policies import Policy, Spike
from penstock.run.records import StepRecord, Whole

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
