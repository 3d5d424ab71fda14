"""A program that sets variables for what it imports next finds them effective in a forked rank as in an executed one.

Method: the same program is run by the interpreter itself and by a fork of a real zygote that has torch imported, and what it sees is compared.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.jobs import PATIENCE_S, Running
from tests.process.nursing import Ended, Program, Zygote, zygote

#: What ranks of a gang begin with.
BEGIN = {"OMP_NUM_THREADS": "1", "MKL_DYNAMIC": "FALSE"}
SHOWS = """
import threading
def threads():
    import torch
    found = []
    other = threading.Thread(target=lambda: found.append((torch.ones(9) + 1).sum().item() + torch.get_num_threads()))
    other.start()
    other.join()
    print(torch.get_num_threads(), found, torch.arange(1e5).sin().sum().item(), flush=True)
"""
HABITS = {
    "update": "import os\nos.environ.update(OMP_NUM_THREADS='3')\nimport torch\nfrom shows import threads\nthreads()",
    "a loop over a configuration": (
        "import os, settings\nfor name, value in settings.VARIABLES.items():\n    os.environ[name] = value\n"
        "from torch.nn import Linear\nfrom shows import threads\nthreads()"
    ),
    "numpy comes first": (
        "import os, numpy\nos.environ |= {'OMP_NUM_THREADS': '2'}\nimport importlib\nimportlib.import_module('torch')\n"
        "from shows import threads\nthreads()"
    ),
    "too late": (
        "import torch, os\ntorch.get_num_threads()\nos.environ.update({'OMP_NUM_THREADS': '4'})\nimport torch.nn\n"
        "from shows import threads\nthreads()"
    ),
    "what only a fresh process can have": (
        "import os, settings\nos.environ.update(settings.COMPILER)\nimport torch._dynamo.config as config\nprint(config.verbose)"
    ),
    "an import that fails": "import numpy\nimport nowhere",
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Zygote]:
    with zygote("numpy", "torch", "torch._dynamo", environment=BEGIN) as warmed:
        assert "ready" in warmed.hear()
        yield warmed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "settings.py").write_text(
        "VARIABLES = {'MKL_NUM_THREADS': '2', 'SEED': '1'}\nCOMPILER = {'TORCHDYNAMO_VERBOSE': '1'}\n"
    )
    return tmp_path


@pytest.mark.parametrize("habit", HABITS)
def test_variables_that_a_program_sets_are_effective_as_in_a_fresh_process(
    warm: Zygote, folder: Path, habit: str
) -> None:
    (folder / "program.py").write_text(HABITS[habit])
    program = Program(["program.py"], folder, command=[sys.executable, "program.py"])
    (forked,) = warm.run(program)
    done = subprocess.run(
        program.command,
        cwd=folder,
        env={**os.environ, **BEGIN, "RANK": "0"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert forked == Ended(done.returncode, done.stdout, done.stderr)


def test_variables_that_are_read_when_they_are_needed_are_nothing_special(warm: Zygote, folder: Path) -> None:
    (folder / "program.py").write_text(
        "import os\nprint('on')\nos.environ.update(TORCH_NCCL_BLOCKING_WAIT='1')\nimport torch\nprint(type(torch.__spec__).__name__)"
    )
    (forked,) = warm.run(Program(["program.py"], folder))
    assert forked == Ended(0, "on\nModuleSpec\n", "")


def test_a_rank_that_has_done_something_is_not_executed_again_and_says_so(warm: Zygote, folder: Path) -> None:
    """Goal: nothing happens twice. Method: the program writes, starts a thread, a process, or opens a socket before it sets what is too late."""
    late = "os.environ.update(TORCHDYNAMO_VERBOSE='1')\nimport torch._dynamo.config as config\nprint(config.verbose)"
    deeds = {
        "import os\nprint('once', flush=True)\n": "it has written something",
        "import os\nos.write(1, b'once')\n": "it has written something",
        "import os, threading\nhold = threading.Event()\nthreading.Thread(target=hold.wait, daemon=True).start()\n": "it has started threads",
        "import os, subprocess\nsubprocess.run(['true'])\n": "it has started processes",
        "import os, socket\nopen_one = socket.create_server(('127.0.0.1', 0))\n": "it has opened socket:",
    }
    for deed, why in deeds.items():
        (folder / "program.py").write_text(deed + late)
        program = Program(["program.py"], folder, command=[sys.executable, "program.py"])
        (forked,) = warm.run(program)
        assert (forked.code, forked.out.count("once")) == (0, deed.count("once")), forked
        assert forked.out.endswith("False\n")
        assert (
            f"TORCHDYNAMO_VERBOSE changed in a rank that was forked with its imports done, and the rank is not executed again because {why}"
            in forked.err
        )


def test_the_next_life_of_such_a_rank_is_executed(run: Callable[..., Running], tmp_path: Path) -> None:
    """Goal: what has no effect in a fork has it in the next life. Method: a real job whose ranks say something before they set a variable of numpy's."""
    (tmp_path / "train.py").write_text(
        "import os\nprint('begun', flush=True)\nos.environ.update(NPY_DISABLE_CPU_FEATURES='AVX512F')\nimport numpy\n"
        "assert os.environ['PENSTOCK_INCARNATION'] == '1'\n"
    )
    running = run("--ranks", "2", "--restarts", "1", "--preload", "numpy", str(tmp_path / "train.py"))
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)

    assert running.launcher.returncode == 0, err
    assert err.count(b"NPY_DISABLE_CPU_FEATURES changed in a rank that was forked") == 2
    (gang,) = running.state().gangs
    assert {worker["how"] for worker in gang.workers} == {"exec"}
    assert gang.zygote.startswith("executed: the program sets NPY_DISABLE_CPU_FEATURES")
