"""Everyday conditions end in a sentence, never in a traceback: no home, no permission, no space, no reader."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.process.jobs import PATIENCE_S, PENSTOCK, Running

Run = Callable[..., Running]
COMMANDS = (
    ["run", "--", "true"],
    ["run", "--detach", "--", "true"],
    ["jobs"],
    ["jobs", "--prune"],
    ["ps"],
    ["top", "--once"],
    ["logs", "x"],
    ["stop", "x"],
    ["events", "x"],
    ["incident", "x"],
    ["slots"],
    ["doctor"],
)


#: Runs every command of its first argument in a fork of one Python, and tells what each exited with and wrote.
DRIVER = """
import json, os, sys, tempfile
import penstock.cli.root, penstock.cli.main as cli
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile("w+", dir="/dev/shm") as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            code = cli.main(words)
            sys.stdout.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        print(json.dumps([words, code, file.read()]), flush=True)
"""


def check_all(home: Path, commands: Sequence[list[str]]) -> dict[str, tuple[int, str]]:
    """Each command with that home says what is wrong in sentences; what it exited with and said."""
    variables = {**os.environ, "PENSTOCK_HOME": str(home), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
        check=True,
    )
    answers = {
        " ".join(words): (code, said) for words, code, said in map(json.loads, done.stdout.splitlines())
    }
    assert len(answers) == len(commands), done.stderr
    for words, (code, said) in answers.items():
        about = (words, home, said)
        assert "Traceback" not in said, about
        assert "panicked" not in said, about
        assert code in (0, 1, 2), about
        assert code == 0 or said.startswith("error: "), about
    return answers


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """File systems of their own, in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"disk-{len(mounted)}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_home_that_cannot_be_used(tmp_path: Path) -> None:
    """Goal: sentences. Method: homes that are a file, below a file, and in /proc where nobody may write."""
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file/below", Path("/proc/nowhere")):
        answers = check_all(home, COMMANDS)
        for words in ("run -- true", "run --detach -- true"):
            code, said = answers[words]
            assert (code, "PENSTOCK_HOME" in said) == (1, True), said


def test_a_home_that_is_only_read(disk: Callable[[str], Path]) -> None:
    place = disk("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    assert "Read-only file system" in check_all(place, COMMANDS)["run -- true"][1]


def test_a_disk_without_space_at_the_start(disk: Callable[[str], Path]) -> None:
    """Goal: a job that cannot begin says so, and leaves nothing. Method: file systems that are full, or nearly so."""
    place = disk("size=256k")
    (place / "home").mkdir()
    filler = place / "filler"
    for left in (0, 4096, 12288, 24576, 65536):
        filler.write_bytes(b"")
        about = os.statvfs(place)
        filler.write_bytes(b"x" * max(0, about.f_bavail * about.f_frsize - left))
        answers = check_all(place / "home", [["run", "--", "true"], ["jobs"], ["ps"], ["jobs", "--prune"]])
    assert answers["run -- true"] == (0, "")


def test_a_reader_that_leaves_and_outputs_that_are_closed(run: Run) -> None:
    """Goal: `| head` and closed outputs are everyday. Method: a job with much to tell, and readers that take a line, or nothing."""
    running = run(
        "--detach", "--", "bash", "-c", "for n in {1..3000}; do echo one more line of this log $n; done"
    )
    running.wait_phase("succeeded")
    name, home = running.job.id, str(running.home)
    for words in (
        ["logs", name],
        ["logs", name, "--json"],
        ["ps", name],
        ["events", name],
        ["jobs"],
        ["--help"],
    ):
        script = f"{' '.join(PENSTOCK)} {' '.join(words)} | head -n 1"
        piped = _shell(home, script)
        assert "Traceback" not in piped.stderr, (words, piped.stderr)
        assert "Exception ignored" not in piped.stderr, (words, piped.stderr)
        assert len(piped.stdout.splitlines()) == 1
        for closed in (">&-", "<&- >&- 2>&-"):
            done = _shell(home, f"{' '.join(PENSTOCK)} {' '.join(words)} {closed}")
            assert "Traceback" not in done.stderr + done.stdout, (words, closed, done.stderr)
            assert "Exception ignored" not in done.stderr, (words, closed, done.stderr)
        full = _shell(home, f"{' '.join(PENSTOCK)} {' '.join(words)} > /dev/full")
        assert full.stderr == "error: standard output: No space left on device\n", (words, full.stderr)


def _shell(home: str, script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PENSTOCK_HOME": home},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
