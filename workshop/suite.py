"""Runs the tests as `make test` does, and tells a test that fails from one that failed beside others.

Thousands of tests start real processes and wait for real clocks. Where a few fail, exactly those run once more, one after
the other on a quiet machine: a defect fails again, and the suite with it. A test that passes then is named as unsteady at
the end, so that it is mended, and the suite passes. More failures than ``SECOND_TRIES`` are a defect without a second look.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECOND_TRIES = 5
TESTS_FAILED = 1  # pytest's exit code; every other one is an error of the run itself


def main() -> int:
    """The whole suite, or what the words select."""
    words = sys.argv[1:]
    status = pytest("--cache-clear", *words)
    if status != TESTS_FAILED:
        return status
    failed = failures()
    if not 0 < len(failed) <= SECOND_TRIES:
        return status
    print(f"\n{len(failed)} failed beside others; once more, alone:", *failed, sep="\n  ", flush=True)
    status = pytest("--numprocesses", "0", *failed)
    if status == 0:
        print(
            "\nunsteady: failed beside others and passed alone; mend them:", *failed, sep="\n  ", flush=True
        )
    return status


def pytest(*words: str) -> int:
    """Run pytest in the environment of the project."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode


def failures() -> list[str]:
    """The tests that failed in the run that has just ended."""
    remembered = ROOT / ".pytest_cache/v/cache/lastfailed"
    try:
        return sorted(name for name, did in json.loads(remembered.read_text()).items() if did)
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main())
