"""Everything that screens show of a run, computed together: its report, curves, marks and maps; and whether any of it has changed."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.report.curves.life_sums import life_sums, stall_stacks
from penstock.report.curves.run_curves import HEAT_COLUMNS_MAX, LOSS, RunCurves, heat_map, run_curves
from penstock.report.curves.run_marks import run_marks
from penstock.report.curves.step_table import RunSteps, run_steps
from penstock.report.run_evidence import evidence_of
from penstock.report.run_mfu import peaks_of
from penstock.report.run_report import Evidence, RunReport, report_of

#: What a run adds to while it runs.
_GROWING = ("journal", "records", "steps", "events")


class NewestStep(NamedTuple):
    """Where a run is; None where nothing says."""

    step: int | None
    loss: float | None


@dataclass(frozen=True)
class RunScreen:
    """Of one run at one moment."""

    path: Path
    #: Of the files that it was made from.
    signature: str
    evidence: Evidence
    report: RunReport

    @cached_property
    def steps(self) -> RunSteps:
        """Columns of its steps."""
        return run_steps(self.path, self.report.steps)

    @cached_property
    def curves(self) -> RunCurves:
        """Its curves."""
        return run_curves(self.steps, self.report.ledger, peaks_of(self.report.mfu))

    @cached_property
    def newest(self) -> "NewestStep":
        """The last step that any rank has, and the last loss."""
        steps = self.steps.steps
        losses = next(
            (curve.lines[0].mean for curve in self.curves.curves if curve.name == LOSS), np.empty(0)
        )
        known = losses[np.isfinite(losses)]
        return NewestStep(int(steps[-1]) if len(steps) else None, float(known[-1]) if len(known) else None)

    @cached_property
    def marks(self) -> dict[str, Any]:
        """What happened at which step."""
        return run_marks(self.path, self.evidence.timelines, self.report.ledger.incidents)

    @cached_property
    def lives(self) -> list[dict[str, Any]]:
        """The ledger by life."""
        return life_sums(self.report.ledger)

    @cached_property
    def stalls(self) -> list[dict[str, Any]]:
        """The stalls of the report, with stacks."""
        return stall_stacks(self.report.stalls, self.evidence.stacks)

    def prepare(self) -> None:
        """Compute now what is computed when it is first asked for."""
        for part in (self.curves, self.marks, self.lives, self.stalls):
            assert part is not None

    def heat_map(self, column: str, columns_max: int = HEAT_COLUMNS_MAX) -> dict[str, Any]:
        """A column as rank by step."""
        return heat_map(self.steps, column, columns_max)


def run_screen(run: str | os.PathLike[str]) -> RunScreen:
    """Read a run and compute what it means; the signature is taken first, so that a change in between is seen the next time."""
    path = Path(run)
    signature = signature_of(path)
    evidence = evidence_of(path)
    return RunScreen(path, signature, evidence, report_of(evidence))


def signature_of(run: str | os.PathLike[str]) -> str:
    """Changes when the run has written something. Looks at names, sizes and times of files, and opens none."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in _GROWING:
        try:
            entries = sorted(os.scandir(Path(run) / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat()
            except FileNotFoundError:  # replaced since it was listed
                continue
            facts = (entry.name, status.st_size, status.st_mtime_ns)
            digest.update(repr(facts).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()
