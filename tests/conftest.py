"""What tests need from the system, and the rule when it is missing.

A test that needs a program asks for its fixture. Where the program is missing the test is skipped by name with the
reason in the last lines; under ``CI=true`` that is a failure, because `make test` should have installed it.
"""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def need(program: str, *, remedy: str) -> str:
    """The path of a program, or a skip (a failure under CI) that says how to get it."""
    found = shutil.which(program)
    if found is not None:
        return found
    reason = f"{program} is not installed: {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The browser of the web tests."""
    return need("chromium", remedy="apt-get install chromium (`make test` as root does it)")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skips are the last thing said, each by name with its reason."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"skipped: {report.nodeid}: {reason}")
