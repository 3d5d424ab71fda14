"""A real small run in which something is planted for the watcher to see: ``python -m tests.report.alert_program STREAM OUT CASE``.

The work of a step is a pause, so that a step has a length of its own on any machine.
"""

import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from penstock.observe.flops import StepFlops
from penstock.run import Policy
from penstock.run.plain import PlainState
from penstock.state.ranks.clock import Clock
from tests.process.jobs import wait_until
from tests.run.small import make, start
from tests.torch.stream import Stream

pause = Clock().pause
STEP_S = 0.02
#: A device whose peak is known.
DEVICE = "NVIDIA H100 80GB HBM3"
PEAK = 989.4e12
CASES = ("clean", "stall", "mfu_drop", "goodput", "memory_growth", "nan", "impossible")


class DeviceState(PlainState):
    """Says that it is on a device, so that shares of its peak can be told."""

    device_name = DEVICE


class Count:
    """FLOPs of a step, as if they had been traced."""

    def __init__(self, share: float) -> None:
        self._flops = {"bfloat16": int(share * PEAK * STEP_S)}

    def step(self, batch: Any) -> StepFlops:
        return StepFlops(self._flops, self._flops, self._flops, tokens=1, real_tokens=1)


def train(stream: Stream, out: Path, case: str) -> None:
    steps = {"goodput": 40, "memory_growth": 200, "mfu_drop": 270}.get(case, 150)
    if case == "goodput":
        pause(12.0)
    run = make(stream, out, Policy(stop_at=steps, save_every=10**6))
    state = DeviceState(start())
    kept: list[Any] = []
    count = Count(3.0 if case == "impossible" else 0.4)
    for step, _ in run.steps(state, flops=count):
        pause(STEP_S)
        if case == "stall" and step == 60:
            pause(6.0)
        if case == "mfu_drop" and step >= 250:
            pause(20 * STEP_S)
        if case == "goodput" and step == 39:
            # Still there, for a watcher to look at.
            pause(2.5)
        if case == "memory_growth":
            kept.append(np.ones(500_000))
        run.report(loss=1.0)
        if case == "nan" and step == 60:
            run.log(extra=math.nan)


def main(stream: Path, out: Path, case: str) -> None:
    """All cases begin together, so that none trains while others start; in a process that is born then, so that no start is waiting for others."""
    out.with_suffix(".ready").touch()
    wait_until((out.parent / "go").exists, "all are ready", timeout_s=120)
    child = os.fork()
    if child == 0:
        train(Stream(stream), out, case)
    else:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
