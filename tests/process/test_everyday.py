"""Everyday conditions end in a sentence, never in a traceback: no home, no permission, no space, no reader."""

import os
import subprocess
from collections.abc import Callable, Iterator
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


def command(home: str | Path | None, *words: str, **options: object) -> "subprocess.CompletedProcess[str]":
    """A command with that home; none for no home at all."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PENSTOCK_HOME", "HOME")}
    variables = kept if home is None else {**kept, "PENSTOCK_HOME": str(home), "HOME": str(home)}
    settings = {"env": variables, "capture_output": True, "text": True, "timeout": 2 * PATIENCE_S, **options}
    return subprocess.run([*PENSTOCK, *words], **settings)  # type: ignore[call-overload,no-any-return]


def check(done: "subprocess.CompletedProcess[str]", *words: object) -> None:
    """It says what is wrong, and what to do, in sentences."""
    said = (done.stdout or "") + (done.stderr or "")
    assert "Traceback" not in said, (words, said)
    assert "panicked" not in said, (words, said)
    assert done.returncode in (0, 1, 2), (words, said)
    if done.returncode:
        assert said.startswith("error: "), (words, said)


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


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_home_that_cannot_be_used(words: list[str], tmp_path: Path) -> None:
    """Goal: sentences. Method: homes that are a file, below a file, in /proc where nobody may write, and none at all."""
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file/below", Path("/proc/nowhere")):
        done = command(home, *words)
        check(done, words, home)
        if words[0] == "run":
            assert done.returncode == 1
            assert "PENSTOCK_HOME" in done.stderr


def test_a_home_that_is_only_read(disk: Callable[[str], Path]) -> None:
    place = disk("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    for words in COMMANDS:
        check(command(place, *words), words)
    assert "Read-only file system" in command(place, "run", "--", "true").stderr


def test_a_disk_without_space_at_the_start(disk: Callable[[str], Path]) -> None:
    """Goal: a job that cannot begin says so, and leaves nothing. Method: file systems that are full, or nearly so."""
    place = disk("size=256k")
    (place / "home").mkdir()
    filler = place / "filler"
    for left in (0, 4096, 8192, 16384, 32768, 65536):
        filler.write_bytes(b"")
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        filler.write_bytes(b"x" * max(0, free - left))
        done = command(place / "home", "run", "--", "true")
        check(done, "run", left)
        for words in (["jobs"], ["ps"], ["jobs", "--prune"]):
            check(command(place / "home", *words), words, left)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_and_outputs_that_are_closed(run: Run) -> None:
    """Goal: `| head` and closed outputs are everyday. Method: a job with much to tell, and readers that take a line, or nothing."""
    running = run("--detach", "--", "bash", "-c", "for n in {1..20000}; do echo a line of the log $n; done")
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
        for closed in (">&-", "2>&-", ">&- 2>&-", "<&-"):
            done = _shell(home, f"{' '.join(PENSTOCK)} {' '.join(words)} {closed}")
            assert "Traceback" not in done.stderr + done.stdout, (words, closed, done.stderr)
            assert "Exception ignored" not in done.stderr, (words, closed, done.stderr)
        full = _shell(home, f"{' '.join(PENSTOCK)} {' '.join(words)} > /dev/full")
        assert full.stderr == "error: [Errno 28] No space left on device\n", (words, full.stderr)


def _shell(home: str, script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PENSTOCK_HOME": home},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
