"""Recording never blocks, never lies about what it lost, and survives kill -9 and fork."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from penstock import errors, events


def test_values_come_back_with_their_types(tmp_path: Path) -> None:
    with events.recording(tmp_path) as path:
        events.record(
            "all",
            a=1,
            b=0.5,
            c=True,
            d=None,
            e="text ü",
            f=np.int64(7),
            g=np.float32(0.25),
            h=[1, 2],
            i=2**80,
        )

    (event,) = events.read(path)

    assert event.fields == {
        "a": 1, "b": 0.5, "c": True, "d": None, "e": "text ü", "f": 7, "g": 0.25, "h": "[1, 2]", "i": str(2**80)
    }  # fmt: skip
    assert event.fields["c"] is True


def test_a_span_carries_its_exception(tmp_path: Path) -> None:
    with events.recording(tmp_path) as path, pytest.raises(KeyError), events.span("step", step=1):
        raise KeyError("lost")

    (event,) = events.read(path)
    assert event.fields == {"step": 1, "error": "KeyError"}
    assert event.duration_ns is not None


def test_without_start_nothing_happens() -> None:
    events.record("unseen")
    with events.span("unseen"):
        pass
    assert events.statistics() is None
    assert events.flush()


def test_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    with events.recording(tmp_path) as path:
        events.record("long", text="ü" * 10_000, after=1)
    (event,) = events.read(path)
    assert event.cut
    assert set(event.fields["text"]) == {"ü"}


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "one.pev"
    path.write_text("precious")
    with pytest.raises(errors.EventFileUnusable) as caught:
        events.start(path)
    assert caught.value.verb == "create"
    assert path.read_text() == "precious"


def test_threads_keep_their_own_order(tmp_path: Path) -> None:
    def work(worker: int) -> None:
        for n in range(2000):
            events.record("tick", worker=worker, n=n)

    with events.recording(tmp_path) as path:
        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    recording = events.read(path)
    seen: dict[int, list[int]] = {}
    for event in recording:
        seen.setdefault(event.fields["worker"], []).append(event.fields["n"])
    assert recording.lost == 0
    assert seen == {worker: list(range(2000)) for worker in range(4)}


def test_a_recording_rotates_and_what_it_forgets_is_counted(tmp_path: Path) -> None:
    """Goal: O5, O2. Method: record six times what the limit allows; the newest events are there, in two files."""
    path = events.start(tmp_path, bytes_max=100_000)
    for n in range(20_000):
        events.record("tick", n=n)
    events.flush()
    statistics = events.statistics()
    events.stop()

    assert statistics is not None
    assert statistics.written + statistics.lost == 20_000
    assert statistics.lost > 0
    assert statistics.error is None
    earlier = path.with_suffix(".earlier.pev")
    assert path.stat().st_size + earlier.stat().st_size < 101_000
    recording = events.read(path)
    kept = [event.fields["n"] for each in (events.read(earlier), recording) for event in each]
    assert len(kept) == statistics.written
    assert kept == list(range(20_000 - statistics.written, 20_000))
    assert recording.lost == statistics.lost


def test_a_killed_recorder_leaves_a_file_that_is_readable_up_to_the_tear(tmp_path: Path) -> None:
    """Goal: nothing flushed is lost by kill -9. Method: kill a process that records as fast as it can, at an
    arbitrary moment after its first flush."""
    script = """
import itertools, sys
from penstock import events
events.start(sys.argv[1])
for n in itertools.count():
    with events.span("tick", n=n):
        pass
    if n == 5000:
        events.flush()
        print("flushed", flush=True)
"""
    path = tmp_path / "killed.pev"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    ) as recorder:
        assert recorder.stdout is not None
        assert recorder.stdout.readline() == "flushed\n"
        recorder.send_signal(signal.SIGKILL)
    assert recorder.returncode == -signal.SIGKILL

    recording = events.read(path)
    numbers = [event.fields["n"] for event in recording if not event.open]
    assert len(numbers) > 5000
    assert recording.lost or numbers == list(range(len(numbers)))
    assert not recording.closed


# Frameworks that other tests imported warn about any fork; this one only records and leaves.
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_without_the_parents_recorder(tmp_path: Path) -> None:
    path = events.start(tmp_path / "parent.pev")
    events.record("parent")
    child = os.fork()
    if child == 0:
        events.record("lost in the child")
        before = events.statistics()
        mine = events.start(tmp_path / "child.pev")
        events.record("child")
        events.stop()
        os._exit(0 if before is None and mine.exists() else 1)
    _, status = os.waitpid(child, 0)
    events.stop()

    assert os.waitstatus_to_exitcode(status) == 0
    assert [event.kind for event in events.read(path)] == ["parent"]
    assert [event.kind for event in events.read(tmp_path / "child.pev")] == ["child"]
    assert events.read(tmp_path / "child.pev").process["pid"] == child


def test_a_process_that_ends_in_order_closes_its_recording(tmp_path: Path) -> None:
    script = "import sys; from penstock import events; events.start(sys.argv[1]); events.record('bye')"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.pev")], check=True)
    recording = events.read(tmp_path / "a.pev")
    assert [event.kind for event in recording] == ["bye"]
    assert recording.closed


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    with events.recording(tmp_path) as path:
        pass
    whole = bytearray(path.read_bytes())
    whole[8:10] = (999).to_bytes(2, "little")
    path.write_bytes(whole)
    with pytest.raises(errors.EventFormatUnknown) as caught:
        events.read(path)
    assert caught.value.found == 999
    assert json.dumps(caught.value.known) == "1"


def test_secrets_of_the_command_line_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.pev"
    script = "import sys; from penstock import events; events.start(sys.argv[1]); events.stop()"
    words = ["--api-key", "correct-horse-1", "--lr", "3e-4", "trombone-paperclip"]
    subprocess.run(
        [sys.executable, "-c", script, str(path), *words],
        check=True,
        env={**os.environ, "MY_TOKEN": "trombone-paperclip"},
    )
    assert events.read(path).process["argv"][2:] == ["--api-key", "[secret]", "--lr", "3e-4", "[MY_TOKEN]"]
    assert b"correct-horse" not in path.read_bytes()
