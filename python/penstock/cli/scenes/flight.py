"""A process records what it does, is killed with SIGKILL in the middle of a step, and its recording is read."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock import events
from penstock.cli.scenes import insist

_STEPS = 2000
_TIMEOUT_S = 60
_WORKER = f"""
import sys
from penstock import events

events.start(sys.argv[1])
for step in range({_STEPS}):
    with events.span("step", step=step):
        with events.span("data.wait"):
            pass
with events.span("step", step={_STEPS}):
    events.flush()
    print("in the middle of a step", flush=True)
    sys.stdin.read()
"""


def play(place: Path) -> Iterator[str]:
    """Start, kill, read, compare."""
    path = place / "worker.pev"
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.kill()
        worker.wait(_TIMEOUT_S)
    yield f"a worker recorded {_STEPS} steps and was killed (signal {-worker.returncode}) inside the next one"

    recording = events.read(path)
    seen = list(recording)
    steps = [event.fields["step"] for event in seen if event.kind == "step" and not event.open]
    unfinished = [event for event in seen if event.open]
    insist("no step is missing from the recording", holds=steps == list(range(_STEPS)))
    insist(
        "the step that was cut short is named", holds=[e.fields.get("step") for e in unfinished] == [_STEPS]
    )
    insist("nothing was lost", holds=recording.lost == 0)
    size_bytes = path.stat().st_size
    yield f"its file ({size_bytes:,} bytes) holds every step in order, and shows step {_STEPS} still open"
