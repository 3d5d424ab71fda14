"""The journal: what was written is read, in order, whatever was torn by a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RunDamaged
from penstock.run import Journal
from penstock.run.journal import journal
from penstock.run.start.decisions import decisions_of
from tests.conftest import ROOT

_ENDLESS = """
import sys
from pathlib import Path
from penstock.run import Journal
made = Journal(Path(sys.argv[1]), 0, 0)
for step in range(1_000_000):
    made.write("note", step, text="x" * (step % 97), sync=step % 50 == 0)
    if step == 200:
        print("going", flush=True)
"""


def test_lines_of_a_killed_writer_are_whole_and_in_order(tmp_path: Path) -> None:
    """Goal: crash-safe. Method: SIGKILL a process that writes as fast as it can."""
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    entries = journal.read(tmp_path)
    assert len(entries) > 200
    assert [entry.step for entry in entries] == list(range(len(entries)))
    with Journal(tmp_path, 1, 0) as later:
        later.write("note", 0, text="next life")
    assert journal.read(tmp_path)[-1].facts == {"text": "next life"}


@given(cut=st.integers(1, 2000))
def test_a_torn_last_line_is_left_out(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory = tmp_path_factory.mktemp("torn")
    with Journal(directory, 0, 0) as writer:
        for step in range(20):
            writer.write("commit", step, digest="b3:" + "0" * step)
    data = writer.path.read_bytes()
    writer.path.write_bytes(data[:cut])
    whole = data[:cut].count(b"\n")
    assert [entry.step for entry in journal.read(directory)] == list(range(whole))


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    with Journal(tmp_path, 0, 0) as writer:
        for step in range(3):
            writer.write("note", step)
    lines = writer.path.read_bytes().splitlines(keepends=True)
    writer.path.write_bytes(lines[0] + b"{garbage\n" + lines[2])
    with pytest.raises(RunDamaged) as caught:
        journal.read(tmp_path)
    assert caught.value.place == len(lines[0])


def test_what_is_in_force_follows_from_the_entries(tmp_path: Path) -> None:
    """Goal: R2, decisions bind later lives. Method: a story of three lives."""
    with Journal(tmp_path, 0, 0) as writer:
        writer.write("start", ranks=4, threads={"torch": 1})
        writer.write("verdict", 3, action="skip", reason="spike")
        writer.write("verdict", 9, action="replay", reason="spike", loss_bits="0x1p+0")
    now = decisions_of(journal.read(tmp_path))
    assert (now.forced, now.replay, now.interventions) == ({3: "skip"}, (9, "0x1p+0"), 2)
    with Journal(tmp_path, 1, 0) as writer:
        writer.write("start", ranks=2, threads={"torch": 2})
        writer.write("replayed", 9, equal=True)
        writer.write("verdict", 12, action="stop", reason="no", rules="r", skips="")
    now = decisions_of(journal.read(tmp_path))
    assert (now.replay, now.replayed) == (None, (9,))
    assert now.stop is not None
    assert (now.stop["step"], now.threads) == (12, {"4": {"torch": 1}, "2": {"torch": 2}})
    with Journal(tmp_path, 2, 0) as writer:
        writer.write("verdict", 12, action="skip", reason="another policy")
    now = decisions_of(journal.read(tmp_path))
    assert (now.stop, now.forced, now.incarnation) == (None, {3: "skip", 12: "skip"}, 2)
