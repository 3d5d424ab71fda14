"""A test that failed beside others runs once more alone: a defect fails the suite, an unsteady test is named."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONGEST


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    """A small project with the runner of ours."""
    (tmp_path / "workshop").mkdir()
    shutil.copy(root / "workshop/suite.py", tmp_path / "workshop/suite.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def suite(project: Path, tests: str) -> tuple[int, str]:
    (project / "test_some.py").write_text(tests)
    command = [sys.executable, "workshop/suite.py", "--numprocesses", "2", "test_some.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


UNSTEADY = """
from pathlib import Path
def test_fails_once(request):
    mark = Path(__file__).with_name("mark")
    first = not mark.exists()
    mark.touch()
    assert not first
"""
GOOD = "def test_good(): pass\n"
BROKEN = "def test_broken(): assert 1 == 2\n"


def test_a_defect_fails_again(project: Path) -> None:
    status, output = suite(project, GOOD + BROKEN + UNSTEADY)
    assert status == 1
    assert "unsteady:" not in output


def test_a_test_that_passes_alone_is_named(project: Path) -> None:
    status, output = suite(project, GOOD + UNSTEADY)
    assert status == 0
    assert output.splitlines()[-1].strip() == "test_some.py::test_fails_once"
    assert "unsteady: failed beside others and passed alone" in output


def test_many_failures_are_not_looked_at_twice(project: Path) -> None:
    status, output = suite(project, "".join(f"def test_{n}(): assert False\n" for n in range(6)))
    assert (status, "once more" in output) == (1, False)


def test_an_error_of_the_run_itself_is_final(project: Path) -> None:
    assert suite(project, "def test_(: pass")[0] not in (0, 5)


def test_what_failed_earlier_does_not_count(project: Path) -> None:
    suite(project, BROKEN)
    (project / "test_some.py").rename(project / "test_other.py")
    status, output = suite(project, UNSTEADY)
    assert (status, "test_broken" in output) == (0, False)


def test_the_longest_files_begin_first(project: Path, root: Path) -> None:
    """Goal: no worker waits for one long file at the end. Method: our hook and the words of the Makefile, with one worker."""
    assert [name for name in LONGEST if not (root / name).is_file()] == []
    (words,) = [line for line in (root / "Makefile").read_text().splitlines() if "workshop/suite.py" in line]
    (project / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(root)!r})\nfrom tests import conftest\n"
        "conftest.LONGEST = ('test_c.py', 'test_b.py')\n"
        "pytest_collection_modifyitems = conftest.pytest_collection_modifyitems\n"
    )
    for name in "abc":
        (project / f"test_{name}.py").write_text(
            "def test_one(): pass\ndef test_two(): pass\n" * (name == "a") + GOOD
        )
    options = [word for word in words.split("suite.py")[1].split() if word.startswith("--")]
    assert "--no-loadscope-reorder" in options
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-n",
        "1",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
    ]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    began = [line.split()[-1].split("::")[0] for line in done.stdout.splitlines() if "PASSED" in line]
    assert list(dict.fromkeys(began)) == ["test_c.py", "test_b.py", "test_a.py"], done.stdout
