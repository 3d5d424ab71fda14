"""What tests need from the system, and the rule when it is missing.

A test that needs a program asks for its fixture. Where the program is missing the test is skipped by name with the
reason in the last lines; under ``CI=true`` that is a failure, because `make test` should have installed it.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time, and no deadline: how long an example takes says how busy the machine is.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent
# Hundreds of processes import a framework, and compiling it takes four times as long as importing it. Kept apart from the sources, so
# that no folder has something in it that no test has put there.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".venv/bytecode")
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]


#: Files that take minutes, in the order in which they begin. Left to xdist they come last, because they have few tests, and all
#: but one worker wait for them. The wheel waits for cargo, which the gates use for minutes.
LONGEST = (
    "tests/tidy/test_gates.py",
    "tests/run/test_chaos.py",
    "tests/run/test_examples.py",
    "tests/process/test_patience.py",
    "tests/cli/test_demo.py",
    "tests/run/test_supervised.py",
    "tests/run/test_gang.py",
    "tests/launchers/test_starts.py",
    "tests/workshop/test_wheel.py",
)


def pytest_configure() -> None:
    """Signals are what they are at a terminal, also where the tests run in the background of a shell or under ``nohup``, which start all
    processes with some of them ignored. A handler of Python's is no child's."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two cores: tests wait for real clocks, browsers and processes for almost half of their time."""
    return max(2, len(os.sched_getaffinity(0)) * 3 // 2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers that share the tests begin with the longest files; alone, tests run in the order of their names."""
    if hasattr(config, "workerinput"):
        place = {name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(LONGEST)))


def need(program: str, *, remedy: str) -> str:
    """The path of a program, or a skip (a failure under CI) that says how to get it."""
    path = shutil.which(program)
    if path is not None:
        return path
    reason = f"{program} is not installed: {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def host_cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests, and the processes that they start, share a cache of their own."""
    before = os.environ.get("PENSTOCK_CACHE")
    place = tmp_path_factory.mktemp("host-cache")
    os.environ["PENSTOCK_CACHE"] = str(place)
    yield place
    if before is None:
        del os.environ["PENSTOCK_CACHE"]
    else:
        os.environ["PENSTOCK_CACHE"] = before


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


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """A bucket on a real S3 server (moto) in a process of its own, reached through the usual environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ.update(settings)
    try:
        _create_bucket(endpoint, "penstock-test", server)
        yield "s3://penstock-test"
    finally:
        server.kill()
        server.wait(30)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _create_bucket(endpoint: str, bucket: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
            with urllib.request.urlopen(request, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            # Waits for the server to listen; a refused connection answers at once, so a short pause is enough.
            threading.Event().wait(0.05)
    pytest.fail("the S3 server did not start")
