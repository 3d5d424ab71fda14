"""Record what a small loop does, then ask the recording where the time went."""

import tempfile
from collections import Counter
from pathlib import Path

from penstock import events


def train(steps: int) -> None:
    """Stand-in for a training loop: two spans per step and one fact."""
    for step in range(steps):
        with events.span("data.wait", step=step):
            batch = list(range(100))
        with events.span("step", step=step):
            loss = sum(batch) / (step + 1)
        events.record("loss", step=step, value=loss)


with tempfile.TemporaryDirectory() as folder:
    with events.recording(Path(folder) / "train.pev") as path:
        train(steps=1000)

    recording = events.read(path)
    total_ns: Counter[str] = Counter()
    for event in recording:
        if event.duration_ns is not None:
            total_ns[event.kind] += event.duration_ns
    for kind, spent_ns in total_ns.most_common():
        print(f"{kind:<10} {spent_ns / 1e6:8.2f} ms")
    assert recording.lost == 0
    assert recording.closed
