"""Launchers, each of which starts the program twice in the same words, and what came of it.

A cell of the matrix is a launcher and how the first start ended; every cell has one outcome for each kind of loop.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tests.conftest import ROOT
from tests.launchers.program import FIRST, LAST, SAVE_EVERY
from tests.launchers.slurm import free_port, submit

How = Literal["crash", "end"]
LOOPS = ("run", "group", "bare")
PROGRAM = ROOT / "tests/launchers/program.py"
_PYTHON = sys.executable
_TORCHRUN = [_PYTHON, "-m", "torch.distributed.run"]
_START_S = 300.0


@dataclass(frozen=True)
class Cell:
    """One start after another, by one launcher."""

    launcher: str
    how: How
    #: Where the program writes, and the stream that a run reads.
    out: Path
    stream: Path
    loops: Sequence[str] = LOOPS
    #: Of Slurm.
    variables: Mapping[str, str] | None = None

    @property
    def ranks(self) -> int:
        """How many are started."""
        return 1 if self.launcher in _ALONE else 2

    @property
    def words(self) -> list[str]:
        """The program and its words, as a user would write them after the launcher's own."""
        return [str(PROGRAM), str(self.out), str(self.stream), ",".join(self.loops), self.how]

    @property
    def environment(self) -> dict[str, str]:
        """Of launchers, without what this process was started with itself."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}
        threads = {"OMP_NUM_THREADS": "1"}
        return {**kept, **threads, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", **(self.variables or {})}


_OF_LAUNCHERS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC_",
    "SLURM_",
    "OMPI_",
    "PMI",
    "PENSTOCK_JOB",
    # None of theirs, and it has every start compile what it imports, which is most of the time.
    "PYTHONDONTWRITEBYTECODE",
)


@dataclass(frozen=True)
class Outcome:
    """What the last start of a cell did with one loop."""

    loop: str
    #: ``resumed N``, ``refused: ERROR``, or what should not be.
    text: str
    good: bool


def outcomes(cell: Cell) -> list[Outcome]:
    """Start everything and look at what the ranks of the second start said."""
    LAUNCHERS[cell.launcher](cell)
    said = [_said(cell, start) for start in (0, 1)]
    newest = SAVE_EVERY if cell.how == "crash" else FIRST
    return [_outcome(loop, [[rank[loop] for rank in start] for start in said], newest) for loop in cell.loops]


def _said(cell: Cell, start: int) -> list[dict[str, Any]]:
    files = [cell.out / f"said/{start}-{rank}.json" for rank in range(cell.ranks)]
    missing = [file.name for file in files if not file.exists()]
    log = cell.out.with_suffix(".log")
    assert not missing, f"{missing} of {cell.launcher}: {log.read_text()[-3000:] if log.exists() else ''}"
    return [json.loads(file.read_text()) for file in files]


def _outcome(loop: str, said: list[list[dict[str, Any]]], newest: int) -> Outcome:
    first, second = said
    if any("error" in rank for rank in first):
        return Outcome(loop, f"the first start failed: {first}", good=False)
    errors = sorted({rank["error"] for rank in second if "error" in rank})
    if errors:
        # A rank that went on beside others that were refused would be as bad as one that begins from nothing.
        whole = all("error" in rank for rank in second)
        return Outcome(
            loop, f"refused: {', '.join(errors)}" if whole else f"half refused: {second}", good=whole
        )
    resumed = {rank["resumed"] for rank in second}
    good = resumed == {newest} and all(rank["count"] == LAST for rank in second)
    numbers = {rank["incarnation"] for start in said for rank in start}
    text = f"resumed {newest}" if good and len(numbers) == 2 else f"WRONG: {second}"
    return Outcome(loop, text, good=good and len(numbers) == 2)


def _twice(commands: Callable[[Cell], list[list[str]]]) -> Callable[[Cell], None]:
    """A launcher whose commands are given twice; those of one start run beside each other."""

    def start(cell: Cell) -> None:
        words = commands(cell)
        for _ in range(2):
            _start(words, cell)

    return start


def _start(commands: list[list[str]], cell: Cell) -> None:
    with cell.out.with_suffix(".log").open("ab") as log:
        running = [
            subprocess.Popen(command, cwd=ROOT, env=cell.environment, stdout=log, stderr=log)
            for command in commands
        ]
        try:
            for process in running:
                process.wait(_START_S)
        finally:
            for process in running:
                process.kill()
                process.wait()


def _static(cell: Cell) -> list[list[str]]:
    """Two machines that meet at an address, as it is done without a rendezvous service."""
    where = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1"]
    port = ["--master-port", str(free_port())]
    return [[*_TORCHRUN, *where, *port, "--node-rank", str(node), *cell.words] for node in range(2)]


def _c10d(cell: Cell) -> list[list[str]]:
    words = ["--rdzv-backend", "c10d", "--rdzv-id", "seven", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    return [[*_TORCHRUN, *words, "--nproc-per-node", "2", *cell.words]]


def _mpirun(cell: Cell) -> list[list[str]]:
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    meeting = ["-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free_port()}"]
    return [[*words, *meeting, _PYTHON, *cell.words]]


def _environment(cell: Cell) -> list[list[str]]:
    """Variables alone, as starters with a host file set them on every host (DeepSpeed's, pdsh, GNU parallel, a loop of a shell)."""
    meeting = ["MASTER_ADDR=127.0.0.1", f"MASTER_PORT={free_port()}", "WORLD_SIZE=2"]
    return [
        ["env", *meeting, f"RANK={rank}", f"LOCAL_RANK={rank}", _PYTHON, *cell.words] for rank in range(2)
    ]


def _detached(cell: Cell) -> list[list[str]]:
    """Without a terminal, in a session of its own."""
    return [["setsid", "--wait", "nohup", _PYTHON, *cell.words]]


def _deprecated(cell: Cell) -> list[list[str]]:
    """What torchrun was before it had a name."""
    words = ["-m", "torch.distributed.launch", "--use-env", "--nproc-per-node", "2"]
    return [[_PYTHON, *words, "--master-port", str(free_port()), *cell.words]]


def _notebook(cell: Cell) -> list[list[str]]:
    """A cell of a notebook: a program whose main module is none of its own. A crash kills the kernel."""
    path, *words = cell.words
    source = (
        f"import runpy, sys; sys.argv = {[path, *words]!r}; runpy.run_path({path!r}, run_name='__main__')"
    )
    starter = (
        "import nbformat, nbclient, sys; book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(sys.argv[1])]); "
        "nbclient.NotebookClient(book, timeout=300, kernel_name='python3').execute()"
    )
    return [[_PYTHON, "-c", starter, source]]


def _accelerate(cell: Cell) -> list[list[str]]:
    # With --cpu it starts one process, however many are asked for; this form starts as many as torchrun does, with or without devices.
    words = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    more = ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())]
    return [[_PYTHON, *words, *more, *cell.words]]


def _penstock(cell: Cell) -> list[list[str]]:
    return [[_PYTHON, "-m", "penstock.cli.main", "run", "--ranks", "2", "--", _PYTHON, *cell.words]]


def _in_restarts(cell: Cell) -> None:
    """torchrun starts its ranks again by itself; after an orderly end it is started again."""
    restarts = "1" if cell.how == "crash" else "0"
    words = [*_TORCHRUN, "--standalone", "--max-restarts", restarts, "--nproc-per-node", "2", *cell.words]
    # As it is, ranks of a new life find the addresses of the dead one in the store that torchrun keeps, and never meet.
    own_store = {**(cell.variables or {}), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    for _ in range(1 if cell.how == "crash" else 2):
        _start([words], replace(cell, variables=own_store))


def _srun_twice(cell: Cell) -> None:
    """Two steps of one allocation."""
    step = _step(cell)
    submit(f"{step}\n{step}", cell.out.parent, cell.environment)


def _requeued(cell: Cell) -> None:
    """One job that Slurm starts again."""
    again = '[ "$SLURM_RESTART_COUNT" = 1 ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; exit; }'
    submit(f"{_step(cell)}\n{again}", cell.out.parent, cell.environment)


def _several_programs(cell: Cell) -> None:
    """Two steps of one allocation, whose ranks have commands of their own."""
    programs = cell.out.with_suffix(".conf")
    programs.write_text("".join(f"{rank} {_PYTHON} {' '.join(cell.words)}\n" for rank in range(2)))
    meeting = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}"
    step = f"{meeting} srun --overcommit -n 2 --multi-prog {programs}"
    submit(f"{step}\n{step}", cell.out.parent, cell.environment)


def _step(cell: Cell) -> str:
    meeting = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}"
    return f"{meeting} srun --overcommit -n 2 {_PYTHON} {' '.join(cell.words)}"


LAUNCHERS: dict[str, Callable[[Cell], None]] = {
    "python": _twice(lambda cell: [[_PYTHON, *cell.words]]),
    "torchrun --standalone": _twice(
        lambda cell: [[*_TORCHRUN, "--standalone", "--nproc-per-node", "2", *cell.words]]
    ),
    "torchrun --rdzv-id": _twice(_c10d),
    "torchrun --master-addr": _twice(_static),
    "torchrun --max-restarts": _in_restarts,
    "accelerate launch": _twice(_accelerate),
    "mpirun": _twice(_mpirun),
    "penstock run": _twice(_penstock),
    "RANK and WORLD_SIZE": _twice(_environment),
    "setsid nohup": _twice(_detached),
    "torch.distributed.launch": _twice(_deprecated),
    "notebook": _twice(_notebook),
    "srun twice": _srun_twice,
    "srun --multi-prog": _several_programs,
    "sbatch --requeue": _requeued,
}
#: Those that need a Slurm.
OF_SLURM = ("srun twice", "srun --multi-prog", "sbatch --requeue")
#: Packages that some need beside those of the tests.
NEEDS = {"notebook": "nbclient"}
#: Those that start one process.
_ALONE = ("python", "setsid nohup", "notebook")
