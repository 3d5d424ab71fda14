"""A bare checkout is made ready, says what is missing in one line, and is not made ready twice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def prepare(root: Path, *, path: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(root / "workshop/prepare.py"), "run"]
    return subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with links to the tools that building needs, to be used as the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("cargo", "cc", "node", "npm", "rustc", "env", "sh", "rustup"):
        if (path := shutil.which(tool)) is not None:
            (folder / tool).symlink_to(path)
    return folder


@pytest.mark.parametrize("tool", ["cargo", "cc", "node", "npm"])
def test_a_missing_tool_is_named_with_a_way_to_get_it(root: Path, tools: Path, tool: str) -> None:
    (tools / tool).unlink()
    done = prepare(root, path=str(tools))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {tool} is missing: install")


def test_a_tool_that_is_too_old_is_named_with_its_version(root: Path, tools: Path) -> None:
    (tools / "node").unlink()
    (tools / "node").write_text("#!/bin/sh\necho v12.22.0\n")
    (tools / "node").chmod(0o755)
    done = prepare(root, path=str(tools))
    assert done.returncode == 2
    assert "node 12.22 is too old, 20.0 is needed" in done.stderr


def test_what_is_ready_is_not_made_ready_again(root: Path) -> None:
    done = prepare(root, path=os.environ["PATH"])
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_makefile_has_at_most_ten_targets(root: Path) -> None:
    listed = subprocess.run(["make", "-s", "help"], cwd=root, capture_output=True, text=True, check=True)
    assert 2 <= len(listed.stdout.splitlines()) <= 10


def test_ci_calls_the_test_command_of_the_readme(root: Path) -> None:
    assert "make test" in (root / "README.md").read_text()
    assert (root / ".ci/run").read_text().splitlines()[-1] == "make test"
