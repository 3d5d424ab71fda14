"""What a report of a run is made from, read once."""

import os
from pathlib import Path

from penstock.errors import RunUnknown
from penstock.observe.steps import read_stacks
from penstock.observe.steps.columns import INTEGERS
from penstock.observe.steps.compile_file import read_compiles
from penstock.observe.steps.flop_record import COLUMNS, read_flop_notes
from penstock.report.accounts.ledger import Ledger, ledger_from
from penstock.report.accounts.run_timeline import run_timeline
from penstock.report.run_report import Evidence
from penstock.run.directory import RunDirectory
from penstock.store.home import penstock_home

#: What rules look at; numbers that the program logged are not.
_COLUMNS = (*INTEGERS, *COLUMNS)


def evidence_of(run: str | os.PathLike[str]) -> Evidence:
    """Everything about a run."""
    path = Path(run)
    if not RunDirectory(path).is_run():
        raise RunUnknown(directory=str(path))
    timeline = run_timeline(path, penstock_home(), _COLUMNS)
    stacks = tuple(read_stacks(path, timeline.faults))
    compiles = tuple(read_compiles(path, timeline.faults))
    return Evidence(
        name=path.name or str(path),
        timelines=tuple(timeline.ranks),
        stacks=stacks,
        lost_rows=timeline.lost_rows,
        faults=tuple(timeline.faults),
        flops=tuple(read_flop_notes(path)),
        alignments=tuple(timeline.alignments),
        compiles=compiles,
    )


def ledger(run: str | os.PathLike[str]) -> Ledger:
    """Where the time of every rank of a run went."""
    path = Path(run)
    if not RunDirectory(path).is_run():
        raise RunUnknown(directory=str(path))
    return ledger_from(run_timeline(path, penstock_home()).ranks)
