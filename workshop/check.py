"""The inner loop: the rules about the code and the tests that need neither a framework nor a gang, within three minutes.

`make test` is what counts; this is what one runs while writing. Folders and files of tests that take long are named here,
and a test asks that every folder is on one side. Where the whole takes longer than its goal, the slowest tests are named.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from progress import Progress
from steps import ROOT, Steps, Unready, complain, interrupt_on_end_signals

BIN = Path(sys.executable).parent
GOAL_S = 180
#: Checkers that answer in seconds. Cargo's, mypy's of stubs and the planted violations are left to `make test`.
CHECKERS: tuple[tuple[str | Path, ...], ...] = (
    ("cargo", "fmt", "--all", "--check"),
    (BIN / "ruff", "check", "."),
    (BIN / "ruff", "format", "--check", "."),
    (BIN / "mypy",),
    (BIN / "lint-imports",),
)
#: Folders of tests whose files are run, but for those named in `SLOW`.
FAST_FOLDERS = ("cache", "events", "formats", "registry", "report", "store", "tidy", "workshop")
#: Folders of tests that start gangs, browsers, launchers or frameworks, or kill things for minutes.
SLOW_FOLDERS = (
    "cli",
    "data",
    "docs",
    "engines",
    "faults",
    "faulty",
    "hosts",
    "jax",
    "launchers",
    "observe",
    "operations",
    "peers",
    "process",
    "run",
    "service",
    "state",
    "torch",
    "view",
)
#: Files of those folders that are exceptions.
SLOW = (
    "registry/test_chat_templates.py",
    "registry/test_fanning.py",
    "tidy/test_gates.py",
    "tidy/test_web_gates.py",
    "workshop/test_wheel.py",
)
FAST = ("test_errors.py",)


def main() -> int:
    """Check, then test."""
    interrupt_on_end_signals()
    begun = time.monotonic()
    try:
        with Progress() as progress:
            steps = Steps(progress)
            steps.side_by_side([partial(check, steps, words) for words in CHECKERS])
    except Unready as problem:
        complain(problem)
        return 1
    except KeyboardInterrupt:
        return 130
    status = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "--dist", "loadfile", *chosen()],
        cwd=ROOT,
        check=False,
    ).returncode
    took_s = time.monotonic() - begun
    print(f"[penstock] checked in {took_s:.0f} s; `make test` runs everything")
    if took_s > GOAL_S:
        print(f"[penstock] more than {GOAL_S} s: what is slowest above belongs to SLOW in workshop/check.py")
    return status


def check(steps: Steps, words: tuple[str | Path, ...]) -> bool:
    """Run one checker."""
    steps.run(" ".join([Path(words[0]).name, *map(str, words[1:])]), words)
    return True


def chosen() -> list[str]:
    """The files of tests that are run."""
    tests = ROOT / "tests"
    files = [file for folder in FAST_FOLDERS for file in sorted((tests / folder).rglob("test_*.py"))]
    slow = {tests / name for name in SLOW}
    return [
        str(file.relative_to(ROOT)) for file in [*files, *(tests / name for name in FAST)] if file not in slow
    ]


if __name__ == "__main__":
    sys.exit(main())
