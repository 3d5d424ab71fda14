"""What ranks are forked from, decided from the command and its text alone; or why they are executed."""

import sys
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.process.job.fork_choice import TORCH, Surroundings, Warmth, warmth


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    """A folder of programs, and two ranks."""
    files = {
        "plain.py": "import json\n",
        "direct.py": "import json, torch\n",
        "far.py": "from project.trainer import train\n",
        "near.py": "import steps, project_without\n",
        "steps.py": "from transformers import AutoModel\n",
        "project/__init__.py": "",
        "project/trainer.py": "from project.model import Model\n",
        "project/model.py": "import torch.nn as nn\n",
        "project_without/__init__.py": "torchlight = 1\n",
        "sets.py": "import os\nos.environ['OMP_NUM_THREADS'] = '4'\nimport torch\n",
        "sets_far.py": "import torch, setting\n",
        "setting.py": "import os\nos.environ.setdefault( \"PYTORCH_ALLOC_CONF\", 'x')\n",
        "reads.py": "import os, torch\nif os.environ['OMP_NUM_THREADS'] == '4': os.environ['MY_OMP_X'] = '1'\n",
        "sets_alone.py": "import os\nos.environ['OMP_NUM_THREADS'] = '4'\n",
        "with_us.py": "import torch\nimport penstock as ps\n",
        "with_us_alone.py": "import json\nfrom penstock import Registry\n",
        "compiled.pyc": "",
        "archive.zip": "PK\x03\x04",
        "shell.sh": "#!/bin/sh\n",
        "tool": f"#!{sys.executable} -O\nimport torch\n",
        "by-env": "#!/usr/bin/env python3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return Surroundings(directory=tmp_path, ranks=2)


@pytest.mark.parametrize(
    ("words", "argv", "flags", "torch"),
    [
        (["plain.py", "--x", "1"], ["plain.py", "--x", "1"], [], False),
        (["direct.py"], ["direct.py"], [], True),
        (["far.py"], ["far.py"], [], True),
        (["near.py"], ["near.py"], [], True),
        (["reads.py"], ["reads.py"], [], True),
        (["sets_alone.py"], ["sets_alone.py"], [], False),
        (
            ["-uO", "-X", "dev", "-Werror", "plain.py", "-m"],
            ["plain.py", "-m"],
            ["-uO", "-X", "dev", "-Werror"],
            False,
        ),
        (["-m", "project.trainer", "-v"], ["project.trainer", "-v"], [], True),
        (["-m", "json.tool"], ["json.tool"], [], False),
        (["-m", "torchvision.datasets"], ["torchvision.datasets"], [], True),
        (["-m", "cyclopts"], ["cyclopts"], [], False),
        (["-c", "import torch", "y"], ["-c", "import torch", "y"], [], True),
        (["-c", "print(1)"], ["-c", "print(1)"], [], False),
    ],
)
def test_commands_of_python_are_taken_apart(
    around: Surroundings, words: list[str], argv: list[str], flags: list[str], torch: bool
) -> None:
    choice = warmth([sys.executable, *words], around)
    assert choice.zygote is not None, choice.why
    assert (choice.zygote["argv"], choice.zygote["flags"]) == (argv, flags)
    assert choice.zygote["interpreter"] == sys.executable
    assert choice.zygote["module"] is ("-m" in words[:1])
    assert choice.zygote["preload"] == (list(TORCH) if torch else [])
    assert ("torch._dynamo" in choice.why) is torch


def test_a_script_names_its_interpreter_in_its_first_line(around: Surroundings) -> None:
    tool = warmth([str(around.directory / "tool"), "a"], around).zygote
    by_env = warmth([str(around.directory / "by-env")], around).zygote
    assert tool is not None
    assert by_env is not None
    assert (tool["interpreter"], tool["flags"]) == (sys.executable, ["-O"])
    assert (tool["argv"], tool["preload"]) == ([str(around.directory / "tool"), "a"], list(TORCH))
    assert Path(by_env["interpreter"]).name == "python3"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["bash", "-c", "true"], "bash is not Python"),
        (["{}/shell.sh"], "shell.sh is not Python"),
        (["no-such-program"], "there is no program no-such-program"),
        ([sys.executable], "Python without a script"),
        ([sys.executable, "-i", "plain.py"], "Python's option -i"),
        ([sys.executable, "-"], "Python's option -"),
        ([sys.executable, "--version"], "Python's option --version"),
        ([sys.executable, "missing.py"], "missing.py cannot be read: No such file or directory"),
        ([sys.executable, "project"], "project cannot be read: Is a directory"),
        ([sys.executable, "archive.zip"], "archive.zip is not text"),
        (
            [sys.executable, "sets.py"],
            "sets.py sets OMP_NUM_THREADS, which is read when something is imported",
        ),
        (
            [sys.executable, "sets_far.py"],
            "setting.py sets PYTORCH_ALLOC_CONF, which is read when something is imported",
        ),
        ([sys.executable, "compiled.pyc"], "compiled.pyc is not text"),
    ],
)
def test_other_commands_are_executed_for_a_reason(
    around: Surroundings, command: list[str], reason: str
) -> None:
    command = [word.format(around.directory) for word in command]
    assert warmth(command, around) == Warmth(None, f"executed: {reason}")
    with pytest.raises(UsageError, match="--zygote always: "):
        warmth(command, around, mode="always")


def test_a_wish_is_respected(around: Surroundings) -> None:
    command = [sys.executable, "direct.py"]
    alone = Surroundings(directory=around.directory)
    assert warmth(command, around, mode="never") == Warmth(None, "executed, as asked for")
    assert "gains nothing" in warmth(command, alone).why
    assert warmth(command, alone, mode="always").zygote is not None
    again = Surroundings(directory=around.directory, restarts=True)
    assert warmth(command, again).zygote is not None
    chosen = warmth(command, around, preload=["numpy", "json"]).zygote
    assert chosen is not None
    assert chosen["preload"] == ["numpy", "json"]
    with pytest.raises(UsageError, match="one of auto, always, never"):
        warmth(command, around, mode="perhaps")


def test_what_has_to_see_a_process_from_its_start_is_not_kept_from_it(around: Surroundings) -> None:
    measured = Surroundings(
        directory=around.directory, ranks=2, environment={"COVERAGE_PROCESS_START": "settings"}
    )
    assert "COVERAGE_PROCESS_START" in warmth([sys.executable, "plain.py"], measured).why


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("with_us.py", [*TORCH, "penstock.run", "penstock.torch"]),
        ("with_us_alone.py", ["penstock.run"]),
        ("direct.py", list(TORCH)),
    ],
)
def test_programs_that_use_us_have_us_imported_beforehand(
    around: Surroundings, script: str, names: list[str]
) -> None:
    choice = warmth([sys.executable, script], around)
    assert choice.zygote is not None
    assert choice.zygote["preload"] == names
