"""Two runs, step by step and bit by bit."""

import subprocess
import sys
from pathlib import Path

from penstock.run import Whole
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from tests.conftest import ROOT
from tests.torch.stream import Stream


def first_difference(one: Path, other: Path) -> str:
    """The first step that is not the same in both, and in what; nothing when all are."""
    left, right = records.read(one), records.read(other)
    if list(left) != list(right):
        return f"steps {list(left)} and {list(right)}"
    for step, whole in left.items():
        if reason := _differs(whole, right[step]):
            return f"step {step}: {reason}"
    return ""


def _differs(one: Whole, other: Whole) -> str:
    if one.batch != other.batch:
        return f"batches {one.batch} and {other.batch}"
    for rank, record in one.ranks.items():
        if repr(record) != repr(other.ranks[rank]):
            return f"rank {rank}: {record} and {other.ranks[rank]}"
    return ""


def kinds(directory: Path) -> list[str]:
    """The kinds of entries of a journal, in order."""
    return [entry.kind for entry in journal.read(directory)]


def program(name: str, stream: Stream, out: Path, *words: object, timeout_s: float = 120) -> None:
    """Run one of the programs, in a process of its own."""
    command = [sys.executable, "-m", "tests.run.programs", name, str(stream.folder), str(out)]
    done = subprocess.run(
        [*command, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
