"""Runs that are exported, and what their owners' readers give back."""

import json
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from penstock.cli.main import main
from penstock.observe.steps import StepRecorder

Capture = pytest.CaptureFixture[str]

#: Shows escapes, markup, line breaks and what is not ASCII.
HOSTILE = "<b>\x1b[31m\nschlüssel/../x"


def recorded(out: Path, lives: list[range], ranks: int = 2, *, close: bool = True) -> list[StepRecorder]:
    """Real rows of a loop without a run; the recorders, which are open unless ``close``."""
    for life, steps in enumerate(lives):
        recorders = [StepRecorder(out, life, rank) for rank in range(ranks)]
        for step in steps:
            for rank, recorder in enumerate(recorders):
                tell(recorder, step, rank)
        for recorder in recorders:
            recorder.flush()
            if close or life + 1 < len(lives):
                recorder.pause()
                recorder.close()
    return recorders


def loss_of(step: int, rank: int) -> float:
    return float("nan") if step == 5 else 3.0 - step / 7 + rank


def tell(recorder: StepRecorder, step: int, rank: int) -> None:
    """One step."""
    recorder.begin(step)
    with recorder.part("data"), recorder.part("forward"):
        sum(range(2000))
    recorder.fact("tokens", 100 + rank)
    recorder.fact("memory_peak", 2**40 + 2 * step)
    recorder.scalar(step, "loss", loss_of(step, rank))
    if step % 3 == 0:
        recorder.scalar(step, HOSTILE, 0.1 * step)
    row = recorder.end(step)
    assert row is not None
    recorder.late(row, "device.forward", 5_000)
    recorder.late(row, "device.idle", 700)


def accumulated(folder: Path) -> Any:
    """TensorBoard's own reader, with everything in it; its build without TensorFlow reads the same and is imported in a second."""
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def scalars(folder: Path, name: str) -> dict[int, float]:
    """A curve; no step may be there twice."""
    events = accumulated(folder).Scalars(name)
    assert max(Counter(event.step for event in events).values()) == 1
    return {event.step: event.value for event in events}


def texts(folder: Path) -> list[str]:
    """What happened, as TensorBoard has it."""
    accumulator = accumulated(folder / "moments")
    if "penstock/moments" not in accumulator.Tags()["tensors"]:
        return []
    return [event.tensor_proto.string_val[0].decode() for event in accumulator.Tensors("penstock/moments")]


def table(folder: Path) -> list[dict[str, Any]]:
    """Rows, as pyarrow finds them."""
    rows = ds.dataset(folder / "steps", format="parquet").to_table().to_pylist()
    assert max(Counter((row["life"], row["rank"], row["begin"]) for row in rows).values(), default=1) == 1
    return rows


def trace(path: Path) -> Any:
    """All packets, by Perfetto's own classes."""
    packets = Trace()
    packets.ParseFromString(path.read_bytes())
    return packets


def slices(path: Path) -> Iterator[tuple[str, str, int, int, int]]:
    """Track, name, depth, begin and end of every slice; begins and ends must nest."""
    tracks: dict[int, str] = {}
    stacks: dict[int, list[tuple[str, int]]] = {}
    latest: dict[int, int] = {}
    for packet in trace(path).packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        event = packet.track_event
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
            assert packet.timestamp >= latest.get(event.track_uuid, 0)
            latest[event.track_uuid] = packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((event.name, packet.timestamp))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, begin = stack.pop()
            yield tracks[event.track_uuid], name, len(stack), begin, packet.timestamp
    assert not any(stacks.values())


def steps_of(path: Path, rank: int) -> list[str]:
    """Names of a rank's steps, in order."""
    return [name for track, name, depth, _, _ in slices(path) if track == f"rank {rank}" and depth == 0]


def instants(path: Path) -> list[str]:
    """Names of all instants."""
    kind = TrackEvent.TYPE_INSTANT
    return [packet.track_event.name for packet in trace(path).packet if packet.track_event.type == kind]


def counters(path: Path) -> dict[tuple[str, str], list[float]]:
    """Values by track and the track around it."""
    tracks: dict[int, tuple[str, str]] = {}
    values: dict[tuple[str, str], list[float]] = {}
    for packet in trace(path).packet:
        if packet.HasField("track_descriptor"):
            about = packet.track_descriptor
            tracks[about.uuid] = (tracks.get(about.parent_uuid, ("", ""))[1], about.name)
        elif packet.track_event.type == TrackEvent.TYPE_COUNTER:
            track = tracks[packet.track_event.track_uuid]
            values.setdefault(track, []).append(packet.track_event.double_counter_value)
    return values


def export(run: Path, to: str, capsys: Capture, *words: str) -> dict[str, object]:
    """What the command says."""
    capsys.readouterr()
    status = main(["runs", "export", str(run), "--to", to, "--json", *words])
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    assert status == (1 if answer["refused"] else 0)
    return answer
