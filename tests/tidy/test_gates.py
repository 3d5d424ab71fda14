"""The field's own checkers pass on our code, and fail on a planted violation."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gate

BIN = Path(sys.executable).parent
ALLOWED = Path(__file__).with_name("stubtest.txt")
STUBTEST = [sys.executable, str(Path(__file__).with_name("stubtest.py")), "penstock._rust"]
STUBTEST += ["--ignore-disjoint-bases", "--allowlist", str(ALLOWED)]


def run(command: list[str], *, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a checker; its words are the failure message."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ["cargo", "fmt", "--all", "--check"],
        ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
        ["cargo", "test", "--workspace", "--all-targets", "--locked", "--quiet"],
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        STUBTEST,
        ["lint-imports", "--no-cache"],
    ],
    ids=lambda command: " ".join(Path(word).name for word in command[:4]),
)
def test_the_checker_passes(root: Path, command: list[str]) -> None:
    done = run(command, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """A copy of the package to plant violations in."""
    ignore = shutil.ignore_patterns("static", "__pycache__", "*.so")
    shutil.copytree(root / "python", tmp_path / "python", ignore=ignore)
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def test_an_upward_import_fails(copy: Path) -> None:
    module = copy / "python/penstock/events/reader.py"
    module.write_text(module.read_text() + "\nfrom penstock.cli import main as _\n")

    done = run(["lint-imports", "--no-cache"], cwd=copy, PYTHONPATH=str(copy / "python"))

    assert done.returncode != 0
    assert "penstock.events.reader -> penstock.cli" in done.stdout


def test_a_floor_that_nobody_placed_fails(copy: Path) -> None:
    (copy / "python/penstock/cellar").mkdir()
    (copy / "python/penstock/cellar/__init__.py").write_text('"""A room without a floor."""\n')

    done = run(["lint-imports", "--no-cache"], cwd=copy, PYTHONPATH=str(copy / "python"))

    assert done.returncode != 0
    assert "cellar" in done.stdout


def test_a_wrong_stub_fails(root: Path, copy: Path) -> None:
    stub = copy / "python/penstock/_rust/events.pyi"
    stub.write_text(
        stub.read_text().replace("def events_flush(timeout_s: float)", "def events_flush(minutes: float)")
    )
    for library in (root / "python/penstock").glob("_rust*.so"):
        shutil.copy(library, copy / "python/penstock")

    done = run(STUBTEST, cwd=copy, PYTHONPATH=str(copy / "python"), MYPYPATH=str(copy / "python"))

    assert done.returncode != 0
    assert "events_flush" in done.stdout


def test_an_untyped_function_fails(copy: Path) -> None:
    # One module, and no look into what it imports: the rules are the same, and the whole package takes a minute.
    module = copy / "python/penstock/observe/doctor.py"
    module.write_text(module.read_text() + "\n\ndef untyped(x):\n    return x\n")

    done = run(["mypy", "--follow-imports=skip", str(module)], cwd=copy)

    assert done.returncode != 0
    assert re.search(r"doctor\.py:\d+: error: Function is missing a type annotation", done.stdout), (
        done.stdout
    )
