"""Pulses: what a worker writes is what a reader reads, whole or not at all, and nobody else writes it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.process import Job, Pulse
from penstock.process.watch import pulse as pulsing
from penstock.process.watch.pulse_file import (
    FILE,
    FORM,
    HEADER,
    LISTENS,
    MAGIC,
    NOTICE,
    PROGRESS,
    RECORD_BYTES,
    SLOT_BYTES,
    STANDING,
    parsed,
    read,
    sealed,
)

NUMBERS = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 2**32 - 1)
#: Runs code in a process that has slot 1 of the file in $ROOM.
ALONE = "import json, os; from penstock.process import notice, phase, pulse\n"


def make(room: Path, slots: int) -> Job:
    """An empty file of pulses, as the agent makes it."""
    header = HEADER.pack(MAGIC, FORM, slots).ljust(SLOT_BYTES, b"\0")
    (room / FILE).write_bytes(header + bytes(SLOT_BYTES * slots))
    return Job(room)


def slots(job: Job) -> list[Pulse | None]:
    """Every slot."""
    return read(str(job.directory / FILE))


def tell(room: Path, slot: int, *, kind: int, number: int, in_s: float, reason: str) -> None:
    """A notice, as the agent writes it."""
    deadline_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + round(in_s * 1e9) if in_s else 0
    half = sealed(NOTICE.pack(deadline_ns, number, kind, reason.encode(), 2 * deadline_ns))
    with (room / FILE).open("r+b") as file:
        file.seek((slot + 1) * SLOT_BYTES + RECORD_BYTES)
        file.write(half)


def worker(room: Path, code: str, **variables: str) -> str:
    """The output of a process that has slot 1."""
    environment = {
        **os.environ,
        "PENSTOCK_PULSES": f"{room / FILE}:1",
        "PENSTOCK_INCARNATION": "3",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", ALONE + code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_worker_is_seen_with_its_steps_phase_and_times(tmp_path: Path) -> None:
    job = make(tmp_path, 3)
    before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    pid = worker(
        tmp_path,
        "for step in range(10, 15): assert pulse(step) is None\nphase('checkpoint')\nprint(os.getpid())",
    )
    first, mine, last = slots(job)
    assert first is None
    assert last is None
    assert mine is not None
    assert (mine.step, mine.steps, mine.pid, mine.incarnation) == (14, 5, int(pid), 3)
    assert (mine.phase, mine.listens, mine.notice_seen) == ("checkpoint", True, 0)
    assert before_ns < mine.step_at_ns <= mine.phase_since_ns < time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert 0 < mine.step_ns <= mine.longest_ns
    assert 0 < mine.typical_ns <= mine.longest_ns


def test_the_first_steps_and_those_with_a_phase_between_say_nothing_about_the_usual_time(
    tmp_path: Path,
) -> None:
    """Goal: the learned step time is that of plain steps. Method: look at the record after each pulse."""
    job = make(tmp_path, 2)
    code = (
        f"from penstock.process.watch.pulse_file import read\nmine = lambda: read({str(tmp_path / FILE)!r})[1]\nseen = []\n"
        "for step in range(3): pulse(step); seen.append(mine().typical_ns > 0)\n"
        "pulse(3); seen.append(mine().typical_ns > 0)\n"
        "known = mine()\n"
        "with phase('checkpoint'): seen.append(mine().phase)\n"
        "seen.append(mine().phase)\n"
        "pulse(4); after = mine()\n"
        "seen.append((after.typical_ns, after.step_ns) == (known.typical_ns, known.step_ns))\n"
        "with phase('eval'): pulse(5); seen.append(mine().phase)\n"
        "pulse(6, phase='compile'); seen.append(mine().phase)\n"
        "print(json.dumps(seen))"
    )
    seen = json.loads(worker(tmp_path, code))
    assert seen == [False, False, False, True, "checkpoint", "step", True, "eval", "compile"]
    assert slots(job)[0] is None


def test_a_notice_is_seen_at_the_next_pulse_and_a_newer_one_replaces_it(tmp_path: Path) -> None:
    job = make(tmp_path, 2)
    tell(tmp_path, 1, kind=2, number=1, in_s=0, reason="the disk is moved")
    code = (
        "told = pulse(1)\nprint(told.kind, told.reason, told.leave_by, told.remaining_s > 1e9)\n"
        "assert notice() is told and pulse(2) is told"
    )
    assert worker(tmp_path, code).split("\n")[0] == "save the disk is moved inf True"
    mine = slots(job)[1]
    assert mine is not None
    assert mine.notice_seen == 1
    tell(tmp_path, 1, kind=1, number=2, in_s=60, reason="é" * 40)
    answer = worker(
        tmp_path,
        "told = notice()\nprint(told.kind, told.number, 50 < told.remaining_s <= 60 < told.save_by - told.leave_by, told.reason)",
    )
    assert answer.split() == ["stop", "2", "True", "é" * 40]


def test_a_notice_that_is_half_written_is_not_seen_yet(tmp_path: Path) -> None:
    make(tmp_path, 2)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(2 * SLOT_BYTES + RECORD_BYTES)
        file.write(NOTICE.pack(1, 5, 1, b"torn", 0))
    assert worker(tmp_path, "print(pulse(1), notice())").split() == ["None", "None"]


@pytest.mark.parametrize("how", ["fork", "start"])
def test_children_of_a_worker_do_not_write_into_its_slot(tmp_path: Path, how: str) -> None:
    job = make(tmp_path, 2)
    fork = "pid = os.fork()\nif pid == 0: pulse(99); phase('eval'); os._exit(0)\nos.waitpid(pid, 0)\n"
    start = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'from penstock.process import pulse; pulse(99)'], check=True)\n"
    )
    worker(tmp_path, "pulse(7)\n" + (fork if how == "fork" else start))
    mine = slots(job)[1]
    assert mine is not None
    assert (mine.step, mine.phase) == (7, "step")


def test_a_process_forked_before_the_first_pulse_has_its_own_slot(tmp_path: Path) -> None:
    """Goal: ranks forked from a warm process pulse. Method: import first, fork, then set the variable and pulse."""
    job = make(tmp_path, 2)
    code = (
        "pid = os.fork()\nif pid == 0:\n"
        "    os.environ['PENSTOCK_PULSES'] = os.environ['LATER']; pulse(5); os._exit(0)\nos.waitpid(pid, 0)"
    )
    worker(tmp_path, code, PENSTOCK_PULSES="", LATER=f"{tmp_path / FILE}:0")
    first = slots(job)[0]
    assert first is not None
    assert first.step == 5


@pytest.mark.parametrize(
    "variable", ["", "nonsense", "/nowhere/pulses:0", "{room}:7", "{room}:x", "{other}:0"]
)
def test_outside_a_job_and_with_a_strange_file_nothing_happens(tmp_path: Path, variable: str) -> None:
    make(tmp_path, 2)
    (tmp_path / "other").write_bytes(b"PENPULSE, but not of ours")
    variable = variable.format(room=tmp_path / FILE, other=tmp_path / "other")
    code = "with phase('eval'): print(pulse(1), notice(), pulse(2, phase='step'))"
    assert worker(tmp_path, code, PENSTOCK_PULSES=variable).split() == ["None"] * 3


def test_pulsing_imports_neither_a_framework_nor_the_rest_of_penstock(tmp_path: Path) -> None:
    make(tmp_path, 2)
    loaded = worker(tmp_path, "import sys; pulse(1); print(*sys.modules)").split()
    ours = {name for name in loaded if name.startswith("penstock") and not name.startswith("penstock.errors")}
    assert ours == {
        "penstock",
        "penstock.process",
        "penstock.process.watch",
        "penstock.process.watch.pulse",
        "penstock.process.watch.pulse_file",
    }
    assert not {"torch", "jax", "numpy", "msgspec", "asyncio", "dataclasses"} & set(loaded)


@pytest.mark.parametrize(
    ("call", "what"),
    [("pulse(-1)", "step"), ("pulse('x')", "step"), ("phase('')", "phase"), ("phase('x' * 17)", "phase")],
)
def test_what_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path, call: str, what: str) -> None:
    make(tmp_path, 2)
    code = f"from penstock.errors import UsageError\ntry: {call}\nexcept UsageError as problem: print(problem)\npulse(3)"
    assert worker(tmp_path, code).startswith(f"a {what} must be a ")


def test_a_phase_that_is_no_word_is_refused_outside_a_job_too() -> None:
    with pytest.raises(UsageError):
        pulsing.phase("a phase with a long name")


@given(st.tuples(*[NUMBERS] * 7), NUMBERS, st.tuples(*[SMALL] * 2), st.booleans(), SMALL, st.text(max_size=5))
def test_what_is_packed_is_parsed(
    progress: tuple[int, ...], since: int, ids: tuple[int, int], listens: bool, seen: int, phase: str
) -> None:
    word = phase.encode()[:16].decode(errors="ignore").rstrip("\0")
    record = sealed(
        PROGRESS.pack(*progress) + STANDING.pack(since, *ids, LISTENS if listens else 0, seen, word.encode())
    )
    assert parsed(record) == Pulse._make((*progress, since, *ids, listens, seen, word))


@given(st.binary(max_size=900), st.booleans())
@settings(deadline=None)
def test_no_file_makes_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ours: bool
) -> None:
    room = tmp_path_factory.mktemp("room")
    (room / FILE).write_bytes(HEADER.pack(MAGIC, FORM, 3) + content if ours else content)
    assert not any(read(str(room / FILE)))


@given(st.integers(0, RECORD_BYTES - 1), st.integers(1, 255))
def test_a_flipped_byte_is_noticed(place: int, flip: int) -> None:
    record = bytearray(sealed(PROGRESS.pack(1, 2, 3, 4, 5, 6, 7) + STANDING.pack(8, 9, 1, 1, 0, b"step")))
    record[place] ^= flip
    assert parsed(bytes(record)) is None
