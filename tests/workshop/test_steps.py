"""Steps run side by side, say how far they are, show the end of their output when one fails, and end together."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.jobs import wait_until

LIMIT_S = 120
#: Two chains and what goes around them, as in `prepare.py`. The words are commands for `sh`, the first read by cargo's reader.
PROGRAM = """
import sys
from rust import crates_done, environment
from progress import Progress
from steps import Steps, Unready, complain, interrupt_on_end_signals
interrupt_on_end_signals()
try:
    with Progress(pipe_pause_s=0.1) as progress:
        steps = Steps(progress)
        def chain(name, words):
            def run():
                steps.run(name, ["sh", "-c", words], environment=environment(), reader=crates_done)
                return True
            return run
        steps.side_by_side([chain(name, words) for name, words in zip(("first", "second"), sys.argv[1:])])
except Unready as problem:
    complain(problem)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
"""


def command(*chains: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *chains]


def run(root: Path, *chains: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*chains), cwd=root / "workshop", capture_output=True, text=True, timeout=LIMIT_S
    )


@pytest.fixture
def crates(tmp_path: Path) -> Path:
    """A crate that depends on two others, one with a build script."""
    for name, needs in (("top", ("left", "right")), ("left", ()), ("right", ())):
        folder = tmp_path / name
        (folder / "src").mkdir(parents=True)
        paths = "".join(f'{crate} = {{ path = "../{crate}" }}\n' for crate in needs)
        (folder / "Cargo.toml").write_text(
            f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2024"\n[dependencies]\n{paths}[workspace]\n'
        )
        (folder / "src/lib.rs").write_text("")
    # Takes long enough to be seen.
    pause = "fn main() { std::thread::sleep(std::time::Duration::from_secs(2)) }\n"
    (tmp_path / "left/build.rs").write_text(pause)
    return tmp_path / "top"


def test_cargo_is_shown_as_crates_done_of_all(root: Path, crates: Path, tmp_path: Path) -> None:
    """Goal: nobody waits before a silent line. Method: real cargo, in a pipe and on a terminal."""
    build = f"cd '{crates}' && cargo build --offline --target-dir '{tmp_path}/target-'"

    piped = run(root, build + "pipe")

    assert piped.returncode == 0, piped.stderr
    assert re.search(r"^\[penstock\] first \d/5 crates \(left\(build\)\) \d s$", piped.stdout, re.M)
    assert "\r" not in piped.stdout
    assert re.search(r"^\[penstock\] first: [\d.]+ s$", piped.stdout, re.M)

    shown = on_terminal(root, build + "terminal")

    assert re.search(r"\r\x1b\[K\[penstock\] first \d/5 crates \(left\(build\)\) \d s\r", shown)
    assert re.search(r"\r\x1b\[K\[penstock\] first: [\d.]+ s\r\n\r\x1b\[K$", shown)


def on_terminal(root: Path, *chains: str) -> str:
    """What a terminal of 100 columns gets."""
    primary, secondary = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100"}
    with subprocess.Popen(
        command(*chains), cwd=root / "workshop", stdout=secondary, env=environment
    ) as child:
        os.close(secondary)
        shown = b""
        while True:
            try:
                part = os.read(primary, 1 << 16)
            except OSError:  # nobody has the other side any more
                break
            if not part:
                break
            shown += part
    os.close(primary)
    assert child.returncode == 0
    return shown.decode()


def test_a_failure_shows_its_last_lines_and_ends_the_others(root: Path, tmp_path: Path) -> None:
    """Goal: one error, at once. Method: beside a step that fails, one that would take for ever, with a child of its own."""
    other = tmp_path / "other"
    long = f"sleep 1000 & echo $! > '{other}.part' && mv '{other}.part' '{other}'; wait"
    fails = f"seq 100; while [ ! -e '{other}' ]; do sleep 0.05; done; echo nothing works >&2; exit 3"

    done = run(root, fails, long)

    assert done.returncode == 2
    *output, last = done.stderr.splitlines()
    assert output == [*map(str, range(62, 101)), "nothing works"]
    assert last.startswith("error: first: `sh -c seq 100;")
    assert last.endswith("exited with 3")
    assert gone(int(other.read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_ends_it_ends_what_it_started(root: Path, tmp_path: Path, number: signal.Signals) -> None:
    other = tmp_path / "other"
    long = f"sleep 1000 & echo $! > '{other}.part' && mv '{other}.part' '{other}'; wait"
    with subprocess.Popen(command(long), cwd=root / "workshop", stdout=subprocess.DEVNULL) as child:
        wait_until(other.exists, "the step runs")
        child.send_signal(number)
        assert child.wait(LIMIT_S) == 130
    assert gone(int(other.read_text()))


def gone(pid: int) -> bool:
    """Whether a process has ended, or does so now."""

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(ended, "what was started has ended")
    return ended()


def test_lines_without_ends_do_not_fill_the_memory(root: Path) -> None:
    done = run(root, "head -c 1000000 /dev/zero | tr '\\0' x; exit 1")
    assert done.returncode == 2
    assert len(done.stderr) < 40 * (4096 + (1 << 16)) + 1000
