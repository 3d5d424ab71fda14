"""Stacks of all workers of a job at once: collected from outside, grouped by equality, shown with ranges of ranks.

``python -m penstock.process.stacks DIRECTORY --json`` is how the agent, which has no Python of its own, takes them before it ends a
gang that hangs.
"""

from penstock.process.questions.number_ranges import ranges
from penstock.process.stacks.by_agent import collect_by_agent
from penstock.process.stacks.collection import Collected, collect
from penstock.process.stacks.frames import Frame, Look, Thread
from penstock.process.stacks.groups import Group, groups_of
from penstock.process.stacks.text import shown

__all__ = [
    "Collected",
    "Frame",
    "Group",
    "Look",
    "Thread",
    "collect",
    "collect_by_agent",
    "groups_of",
    "ranges",
    "shown",
]
