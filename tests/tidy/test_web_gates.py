"""The checkers of the pages pass on our code, and fail on a planted violation."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.gate


def run(tool: str, *options: str, web: Path) -> subprocess.CompletedProcess[str]:
    """Run an installed tool of the pages; its words are the failure message."""
    command = [f"node_modules/.bin/{tool}", *options]
    return subprocess.run(command, cwd=web, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("command", [("tsc", "--noEmit"), ("vitest", "run")], ids=" ".join)
def test_the_checker_passes(root: Path, command: tuple[str, ...]) -> None:
    done = run(*command, web=root / "web")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """A copy of the pages to plant violations in."""
    for name in ("src", "test"):
        shutil.copytree(root / "web" / name, tmp_path / name)
    for name in ("tsconfig.json", "vite.config.ts", "package.json"):
        shutil.copy(root / "web" / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(root / "web/node_modules")
    return tmp_path


def test_the_use_of_a_field_that_was_renamed_fails(copy: Path) -> None:
    types = copy / "src/wire/types.ts"
    types.write_text(types.read_text().replace("  created: string;", "  made: string;"))

    done = run("tsc", "--noEmit", web=copy)

    assert done.returncode != 0
    assert "src/page/versions.tsx" in done.stdout
    assert "'created' does not exist" in done.stdout


def test_a_layout_that_is_off_by_one_fails(copy: Path) -> None:
    lines = copy / "src/batch/lines.ts"
    lines.write_text(lines.read_text().replace("used + width > columns", "used + width >= columns"))

    done = run("vitest", "run", "test/grid.test.ts", web=copy)

    assert done.returncode != 0
    assert "every row of the batch begins a line" in done.stdout + done.stderr
