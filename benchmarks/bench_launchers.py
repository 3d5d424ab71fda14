"""What a second start goes on from: every launcher, after a crash and after an orderly end, with a run and with two loops by hand.

Each cell is a real launcher that starts the program of the tests twice in the same words: with Slurm and Open MPI as Debian has them. A row is
1 where all ranks resumed from the newest commit or all were refused, 0 where they did not; the note says which.
"""

import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tests.launchers.matrix import LAUNCHERS, NEEDS, OF_SLURM, Cell, How, Outcome, outcomes
from tests.launchers.slurm import slurm
from tests.torch.stream import make_stream

from benchmarks.table import Table

_HOW: tuple[How, ...] = ("crash", "end")


def run() -> Table:
    """Every cell once."""
    table = Table("a second start resumes the newest commit or is refused", "of 1", smaller_is_better=False)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder)
        (place / "stream").mkdir()
        stream = make_stream(place / "stream").folder
        variables = stack.enter_context(slurm(place / "slurm"))
        contenders = [name for name in LAUNCHERS if name not in NEEDS or find_spec(NEEDS[name]) is not None]
        print(f"not installed: {', '.join(LAUNCHERS.keys() - set(contenders)) or 'none'}", flush=True)
        for number, (launcher, how) in enumerate((name, how) for name in contenders for how in _HOW):
            own = place / str(number)
            own.mkdir()
            cell = Cell(
                launcher,
                how,
                own / "out",
                stream,
                variables=variables if launcher in OF_SLURM else None,
            )
            try:
                results = outcomes(cell)
            except AssertionError as problem:
                results = [Outcome("all", f"not started: {problem}", good=False)]
            for result in results:
                print(f"{launcher}, {how}, {result.loop}: {result.text}", flush=True)
                table.add(f"{launcher}, {how}, {result.loop}", float(result.good), result.text)
    return table
