"""The step table: what every step of every rank took, recorded by default and read back whatever happened to the files.

``StepRecorder`` is what a loop tells about its steps; ``read_steps``, ``read_anchors`` and ``read_stacks`` give back what lies below a run's
directory. All moments are CLOCK_BOOTTIME in ns.
"""

from penstock.observe.steps.columns import DEVICE, HOST, PARTS, UNMEASURED
from penstock.observe.steps.reader import Anchor, Fault, StepRows, list_steps, read_anchors, read_steps
from penstock.observe.steps.recorder import StepRecorder
from penstock.observe.steps.stack_file import StackSample, read_stacks

__all__ = [
    "DEVICE",
    "HOST",
    "PARTS",
    "UNMEASURED",
    "Anchor",
    "Fault",
    "StackSample",
    "StepRecorder",
    "StepRows",
    "list_steps",
    "read_anchors",
    "read_stacks",
    "read_steps",
]
