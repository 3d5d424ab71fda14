"""Runs exported and read back by the owners of each form: every value, once, whatever was killed."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock import errors
from penstock.cli.main import main
from penstock.observe.steps import PARTS, UNMEASURED, StepRecorder, read_steps
from penstock.report.exports.run_export import Following, export_run, open_sink
from penstock.report.exports.target import target_of
from penstock.run.directory import runs_below
from penstock.state.ranks.clock import Clock
from tests.conftest import ROOT
from tests.report import export_readers
from tests.report.export_readers import HOSTILE, Capture, export, loss_of, recorded, tell
from tests.report.mortal import KILLED_AT, SAVE_EVERY, STEPS
from tests.report.receiver import receiver
from tests.torch.stream import make_stream

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
MORTAL = [sys.executable, str(ROOT / "tests/report/mortal.py")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_tensorboard_reads_every_scalar_of_the_last_execution(tmp_path: Path, capsys: Capture) -> None:
    """Goal: what the curves of a run are, to 32 bits; steps that were executed again once. Method: two lives of two ranks, EventAccumulator."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    recorded(run, [range(7), range(4, 12)])
    assert export(run, f"tensorboard:{logs}", capsys)["steps"] == 12

    losses = export_readers.scalars(logs, "loss")
    assert sorted(losses) == list(range(12))
    for step, loss in losses.items():
        mean = (loss_of(step, 0) + loss_of(step, 1)) / 2
        assert loss == np.float32(mean) or (math.isnan(loss) and math.isnan(mean))
    assert sorted(export_readers.scalars(logs, HOSTILE)) == [0, 3, 6, 9]
    first, second = (rows for rows in read_steps(run) if rows.life == 1)
    slowest = np.maximum(*(rows.columns["end"] - rows.columns["begin"] for rows in (first, second)))
    times = export_readers.scalars(logs, "penstock/step_s")
    assert [times[step] for step in range(4, 12)] == (slowest / 1e9).astype(np.float32).tolist()
    assert export_readers.scalars(logs, "penstock/memory_peak_bytes")[3] == np.float32(2**40 + 6)
    rate = export_readers.scalars(logs, "penstock/tokens_per_s")
    assert rate[4] == pytest.approx(201 / times[4], rel=1e-6)
    assert [text for text in export_readers.texts(logs) if "begins" in text] == [
        "life, life 0, rank 0: life 0 begins",
        "life, life 1, rank 0: life 1 begins",
    ]


def test_parquet_has_every_column_of_every_execution(tmp_path: Path, capsys: Capture) -> None:
    """Goal: nothing is rounded; not measured is null and NaN is NaN. Method: pyarrow's rows against the step table's."""
    run, out = tmp_path / "run", tmp_path / "out"
    recorded(run, [range(7), range(4, 12)])
    export(run, f"parquet:{out}", capsys)

    rows = export_readers.table(out)
    assert len(rows) == 30
    for table in read_steps(run):
        mine = [row for row in rows if (row["life"], row["rank"]) == (table.life, table.rank)]
        for name, column in table.columns.items():
            for row, value in zip(mine, column.tolist(), strict=True):
                if value == UNMEASURED:
                    assert row[name] is None
                else:
                    assert row[name] == value or (math.isnan(row[name]) and math.isnan(value))
    assert {row["step"] for row in rows if row["is_lost"]} == {4, 5, 6}
    assert all(row["life"] == 0 for row in rows if row["is_lost"])
    times = [row["end_at"].value - row["begin_at"].value == row["end"] - row["begin"] for row in rows]
    assert all(times)
    moments = pq.read_table(out / "moments.parquet").to_pylist()
    assert [(moment["kind"], moment["life"]) for moment in moments] == [("life", 0), ("life", 1)]


def test_perfetto_shows_steps_their_parts_and_the_device(tmp_path: Path, capsys: Capture) -> None:
    """Goal: a track per rank whose slices are steps with their parts, in exact nanoseconds. Method: Perfetto's own classes."""
    run, path = tmp_path / "run", tmp_path / "run.pftrace"
    recorded(run, [range(7), range(4, 12)])
    export(run, f"perfetto:{path}", capsys)

    slices = list(export_readers.slices(path))
    for table in read_steps(run):
        begins, ends = table.columns["begin"], table.columns["end"]
        steps = [f"step {step}" for step in table.columns["step"].tolist()]
        mine = [one for one in slices if one[0] == f"rank {table.rank}" and one[2] == 0]
        part = mine[:7] if table.life == 0 else mine[7:]
        assert [one[1] for one in part] == steps
        assert [one[4] - one[3] for one in part] == (ends - begins).tolist()
        for (_, _, _, begin, end), place in zip(part, range(len(part)), strict=True):
            inside = [one for one in slices if one[0] == f"rank {table.rank}" and one[2] == 1]
            lengths = {one[1]: one[4] - one[3] for one in inside if begin <= one[3] and one[4] <= end}
            columns = {name: int(table.columns[f"host.{name}"][place]) for name in PARTS}
            assert lengths == {name: ns for name, ns in columns.items() if ns > 0}
    device = [one for one in slices if one[0] == "rank 1 device"]
    assert {(one[1], one[4] - one[3]) for one in device} == {("forward", 5_000), ("idle", 700)}
    assert len(device) == 2 * 15
    counters = export_readers.counters(path)
    assert counters["rank 0", HOSTILE] == [0.1 * step for step in (0, 3, 6, 6, 9)]
    assert counters["rank 1", "memory_peak"][:2] == [2.0**40, 2.0**40 + 2]
    assert [name for name in export_readers.instants(path) if "nan" in name] == ["loss is nan"] * 4


def test_targets_of_others_are_refused_and_stay_as_they_are(tmp_path: Path, capsys: Capture) -> None:
    """Goal: nothing is overwritten. Method: files of others, targets of another run, another export at work."""
    one, other = tmp_path / "one", tmp_path / "other"
    for run in (one, other):
        recorded(run, [range(3)], 1)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "notes.txt").write_text("mine")
    (tmp_path / "a.pftrace").write_text("mine")
    for to in ("tensorboard:logs", "parquet:logs", "perfetto:a.pftrace"):
        kind, _, name = to.partition(":")
        with pytest.raises(errors.ExportTargetTaken):
            open_sink(target_of(f"{kind}:{tmp_path / name}"), one, {})
    assert (tmp_path / "a.pftrace").read_text() == "mine"
    for kind in ("tensorboard", "parquet", "perfetto"):
        place = f"{kind}:{tmp_path / kind}-target"
        export(one, place, capsys)
        with pytest.raises(errors.ExportTargetTaken, match="another run"):
            open_sink(target_of(place), other, {})
        sink = open_sink(target_of(place), one, {})
        with pytest.raises(errors.ExportTargetTaken, match="another export"):
            open_sink(target_of(place), one, {})
        sink.close()


@pytest.mark.parametrize(
    "to",
    [
        "",
        "tensorboard",
        "tensorboard:",
        "csv:x",
        "otlp:ftp://x",
        "otlp:http://",
        "otlp:http://u:p@x/",
        "otlp:http://x:99999/",
        "parquet:a\0b",
    ],
)
def test_a_target_that_makes_no_sense_is_refused(to: str) -> None:
    with pytest.raises(errors.UsageError, match="--to"):
        target_of(to)


def test_what_a_form_cannot_hold_is_left_out_and_named(tmp_path: Path, capsys: Capture) -> None:
    """Goal: exact, or refused with field and step. Method: a number beyond 32 bits, an integer beyond 2^53, a name that begins like ours."""
    run = tmp_path / "run"
    recorder = StepRecorder(run, 0, 0)
    for step in range(3):
        recorder.begin(step)
        recorder.scalar(step, "loss", 1e300 if step == 1 else 1.0)
        recorder.scalar(step, "penstock/step_s", 1.0)
        recorder.fact("memory_peak", 2**53 + 1)
        recorder.end(step)
    recorder.close()
    answer = export(run, f"tensorboard:{tmp_path / 'logs'}", capsys)
    refusals = [(one["field"], one["step"]) for one in answer["refusals"]]  # type: ignore[attr-defined]
    assert refusals == [("scalar.penstock/step_s", 0), ("loss", 1)]
    assert export_readers.scalars(tmp_path / "logs", "loss") == {0: 1.0, 2: 1.0}
    answer = export(run, f"perfetto:{tmp_path / 'a.pftrace'}", capsys)
    assert answer["refused"] == 3
    export(run, f"parquet:{tmp_path / 'out'}", capsys)
    rows = export_readers.table(tmp_path / "out")
    assert [row["memory_peak"] for row in rows] == [2**53 + 1] * 3
    assert [row["scalar.loss"] for row in rows] == [1.0, 1e300, 1.0]


def test_the_mfu_of_a_step_is_that_of_the_run_or_nothing(tmp_path: Path, capsys: Capture) -> None:
    """Goal: O3 in every form. Method: rows with FLOPs of a known device, one step with more than it can do; the same of an unknown device."""
    for device in ("NVIDIA H200", "NVIDIA H9000"):
        run = tmp_path / device
        recorder = StepRecorder(run, 0, 0)
        for step in range(4):
            recorder.begin(step)
            Clock().pause(0.002)
            count = 10**18 if step == 2 else 10**9
            for kind in ("useful", "executed", "palm"):
                recorder.count(f"flops.{kind}.bfloat16", count)
            recorder.fact("flops_executed", count)
            recorder.end(step)
        recorder.pause()
        recorder.close()
        recorder.beside(".flops.json").write_text(json.dumps({"device": device}))
        logs = tmp_path / f"{device} logs"
        export(run, f"tensorboard:{logs}", capsys)
        if device == "NVIDIA H9000":
            assert "penstock/mfu" not in export_readers.accumulated(logs).Tags()["scalars"]
            continue
        shares = export_readers.scalars(logs, "penstock/mfu")
        assert sorted(shares) == [0, 1, 3]
        main(["report", str(run), "--json", "--steps", "0:2"])
        whole = json.loads(capsys.readouterr().out)["mfu"]["value"]
        times = export_readers.scalars(logs, "penstock/step_s")
        weighted = (shares[0] * times[0] + shares[1] * times[1]) / (times[0] + times[1])
        assert weighted == pytest.approx(whole, rel=1e-5)
        export(run, f"perfetto:{tmp_path / 'a.pftrace'}", capsys)
        assert export_readers.counters(tmp_path / "a.pftrace")["rank 0", "mfu"] == pytest.approx(
            list(shares.values()), rel=1e-6
        )


def test_what_is_exported_is_no_run(tmp_path: Path, capsys: Capture) -> None:
    """Goal: a folder of parquet, which has ``steps`` too, is not listed as a run."""
    recorded(tmp_path / "run", [range(3)], 1)
    export(tmp_path / "run", f"parquet:{tmp_path / 'out'}", capsys)
    assert [run.path.name for run in runs_below(tmp_path)] == ["run"]


def test_late_values_are_waited_for(tmp_path: Path, capsys: Capture) -> None:
    """Goal: a row is exported when it will not change any more. Method: a loop that goes on, with a loss that comes a step late."""
    run, out = tmp_path / "run", tmp_path / "out"
    (recorder,) = recorded(run, [range(100)], 1, close=False)
    recorder.scalar(98, "late", 0.25)
    recorder.flush()
    export(run, f"parquet:{out}", capsys)
    assert [row["step"] for row in export_readers.table(out)] == list(range(36))
    for step in range(100, 110):
        tell(recorder, step, 0)
    recorder.pause()
    recorder.close()
    export(run, f"parquet:{out}", capsys)
    rows = export_readers.table(out)
    assert [row["step"] for row in rows] == list(range(110))
    assert [row["step"] for row in rows if row["scalar.late"] == 0.25] == [98]
    assert len(list((out / "steps").iterdir())) == 1


def test_a_run_that_was_killed_is_exported_with_its_death(tmp_path: Path, capsys: Capture) -> None:
    """Goal: the same in one piece and in two with a death between. Method: a real run that kills itself; an export before the next life, and after."""
    (tmp_path / "stream").mkdir()
    stream = make_stream(tmp_path / "stream")
    run = tmp_path / "run"
    command = [*MORTAL, str(stream.folder), str(run)]
    assert subprocess.run(command, env=ENVIRONMENT, cwd=ROOT).returncode == -signal.SIGKILL
    kinds = {"tensorboard": "logs", "parquet": "out", "perfetto": "a.pftrace"}
    places = {kind: tmp_path / name for kind, name in kinds.items()}
    with receiver() as received:
        targets = [*(f"{kind}:{place}" for kind, place in places.items()), f"otlp:{received.url}"]
        for to in targets:
            answer = export(run, to, capsys, "--follow", "--quiet", "0.01")
            assert answer["is_over"] is False
        subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, check=True)
        for to in targets:
            assert export(run, to, capsys, "--follow")["is_over"] is True

    assert sorted(export_readers.scalars(places["tensorboard"], "penstock/step_s")) == list(range(STEPS))
    told = export_readers.texts(places["tensorboard"])
    assert [text for text in told if text.startswith("death")] == [
        "death, life 0, rank 0: life 0 of rank 0 died"
    ]
    assert sum(text.startswith("checkpoint") for text in told) >= 3
    rows = export_readers.table(places["parquet"])
    executed = [(0, step) for step in range(KILLED_AT + 1)] + [(1, step) for step in range(SAVE_EVERY, STEPS)]
    assert [(row["life"], row["step"]) for row in rows] == executed
    assert [row["step"] for row in rows if row["is_lost"]] == list(range(SAVE_EVERY, KILLED_AT + 1))
    assert [row["step"] for row in rows if row["end"] is None] == [KILLED_AT]
    steps = export_readers.steps_of(places["perfetto"], 0)
    assert steps == [f"step {step}" for life, step in executed if (life, step) != (0, KILLED_AT)]
    instants = export_readers.instants(places["perfetto"])
    assert f"step {KILLED_AT} was torn" in instants
    assert "death: life 0 of rank 0 died" in instants
    assert sum(name.startswith("checkpoint: saved") for name in instants) >= 3
    sent = [
        (facts["penstock.life"], point.as_int)
        for facts, name, point in received.points()
        if name == "penstock.step"
    ]
    assert sent == [one for one in executed if one != (0, KILLED_AT)]


#: A loop that goes on while it is exported: steps of a few milliseconds.
LOOP = """
import sys
from pathlib import Path
from penstock.observe.steps import StepRecorder
from penstock.run.directory import runs_below
from penstock.state.ranks.clock import Clock
from tests.report.export_readers import tell
recorder = StepRecorder(Path(sys.argv[1]), 0, 0)
for step in range(400):
    tell(recorder, step, 0)
    Clock().pause(0.01)
recorder.pause()
recorder.close()
"""


@pytest.mark.parametrize("kind", ["tensorboard", "parquet", "perfetto"])
def test_an_export_that_is_killed_goes_on_where_it_was(tmp_path: Path, kind: str) -> None:
    """Goal: nothing twice and nothing missing. Method: a real export of a growing run, killed four times at any moment, and the rest in peace."""
    run, place = tmp_path / "run", tmp_path / "target"
    program = [sys.executable, "-c", LOOP, str(run)]
    loop = subprocess.Popen(program, env=ENVIRONMENT, cwd=ROOT)
    clock = Clock()
    while not (run / "steps").is_dir():
        assert loop.poll() is None
        clock.pause(0.02)
    words = ["runs", "export", str(run), "--to", f"{kind}:{place}", "--follow"]
    command = [sys.executable, "-m", "penstock.cli.main", *words]
    for _ in range(4):
        process = subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT)
        clock.pause(random.uniform(0.3, 2.0))
        process.kill()
        process.wait()
    assert loop.wait() == 0
    subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, check=True)

    steps = {
        "tensorboard": lambda: sorted(export_readers.scalars(place, "loss")),
        "parquet": lambda: [row["step"] for row in export_readers.table(place)],
        "perfetto": lambda: [int(name[5:]) for name in export_readers.steps_of(place, 0)],
    }[kind]()
    assert steps == list(range(400))


def test_what_a_killed_export_left_behind_its_bookmark_is_cut_off(tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    (recorder,) = recorded(run, [range(100)], 1, close=False)
    places = {"tensorboard": tmp_path / "logs", "perfetto": tmp_path / "a.pftrace"}
    for kind, place in places.items():
        export(run, f"{kind}:{place}", capsys)
        file = next(place.glob("events*")) if place.is_dir() else place
        with file.open("ab") as torn:
            torn.write(b"half a record")
    recorder.pause()
    recorder.close()
    for kind, place in places.items():
        export(run, f"{kind}:{place}", capsys)
    assert sorted(export_readers.scalars(places["tensorboard"], "loss")) == list(range(100))
    assert len(export_readers.steps_of(places["perfetto"], 0)) == 100


def test_a_run_without_steps_is_exported_as_nothing(tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    StepRecorder(run, 0, 0).close()
    for to in ("tensorboard:logs", "parquet:out", "perfetto:a.pftrace"):
        kind, _, name = to.partition(":")
        answer = export(run, f"{kind}:{tmp_path / name}", capsys)
        assert answer["steps"] == 0
        assert export(run, f"{kind}:{tmp_path / name}", capsys)["bytes"] == 0
    assert export_readers.accumulated(tmp_path / "logs").Tags()["scalars"] == []
    assert export_readers.table(tmp_path / "out") == []
    with pytest.raises(errors.RunUnknown):
        main(["runs", "export", str(tmp_path / "nothing"), "--to", "parquet:x", "--debug"])


def test_torn_files_cost_what_they_held_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    """Goal: damage is passed over. Method: a flip in the tail of a rank that was killed, and a foreign file beside it."""
    run = tmp_path / "run"
    (recorder,) = recorded(run, [range(20)], 1, close=False)
    files = {path: bytearray(path.read_bytes()) for path in (run / "steps").iterdir()}
    tail = next(data for path, data in files.items() if path.suffix == ".tail")
    tail[len(tail) // 2] ^= 0xFF
    recorder.close()
    for path, data in files.items():
        path.write_bytes(data)
    (run / "steps" / "000001-0000-0.pst").write_bytes(b"no step file")
    for to in ("tensorboard:logs", "parquet:out", "perfetto:a.pftrace"):
        kind, _, name = to.partition(":")
        sink = open_sink(target_of(f"{kind}:{tmp_path / name}"), run, {})
        export_run(run, sink, Following(quiet_max_s=0.0, pause=lambda seconds: None))
        sink.close()
        assert 15 <= sink.tally.steps <= 20


def test_ranks_that_end_one_after_another_are_waited_for(tmp_path: Path, capsys: Capture) -> None:
    """Goal: a curve over all ranks has all of them in each step. Method: one rank is closed before the other has finished; a look between."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    recorders = [StepRecorder(run, 0, rank) for rank in range(2)]
    for step in range(10):
        tell(recorders[0], step, 0)
    for step in range(6):
        tell(recorders[1], step, 1)
    recorders[0].pause()
    recorders[0].close()
    recorders[1].flush()
    assert export(run, f"tensorboard:{logs}", capsys)["steps"] == 0
    for step in range(6, 10):
        tell(recorders[1], step, 1)
    recorders[1].pause()
    recorders[1].close()
    export(run, f"tensorboard:{logs}", capsys)
    losses = export_readers.scalars(logs, "loss")
    assert losses[9] == np.float32((loss_of(9, 0) + loss_of(9, 1)) / 2)
    assert sorted(losses) == list(range(10))


def test_a_rank_that_is_far_behind_does_not_take_steps_back(tmp_path: Path, capsys: Capture) -> None:
    """Goal: lag is no return. Method: a rank that tells nothing while another is 2,000 steps ahead, and then everything."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    recorders = [StepRecorder(run, 0, rank) for rank in range(2)]
    for step in range(2_000):
        tell(recorders[0], step, 0)
    recorders[0].flush()
    ahead = export(run, f"tensorboard:{logs}", capsys)["steps"]
    assert ahead == 2_000 - 64
    for step in range(2_000):
        tell(recorders[1], step, 1)
    for recorder in recorders:
        recorder.pause()
        recorder.close()
    export(run, f"tensorboard:{logs}", capsys)
    losses = export_readers.scalars(logs, "loss")
    assert sorted(losses) == list(range(2_000))
    assert losses[0] == np.float32(loss_of(0, 0))
    assert losses[1_999] == np.float32((loss_of(1_999, 0) + loss_of(1_999, 1)) / 2)


def test_a_journal_of_strange_entries_is_exported_as_far_as_it_goes(tmp_path: Path, capsys: Capture) -> None:
    """Goal: hostile words and numbers break no form. Method: a journal by hand, and no table at all."""
    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    lines = [
        {"at": 1e30, "kind": "commit", "incarnation": 0, "step": 3, "facts": {}},
        {
            "at": -5.0,
            "kind": "note",
            "incarnation": 0,
            "facts": {"text": "\u001b[31m<script>\n" + "x" * 2000},
        },
        {"at": 1.7e9, "kind": "from the future", "incarnation": 0, "rank": 3, "step": 2**62},
    ]
    words = "".join(json.dumps(line) + "\n" for line in lines) + '{"at": 1'
    (run / "journal" / "000000-0000.jsonl").write_text(words)
    for to in ("tensorboard:logs", "parquet:out", "perfetto:a.pftrace"):
        kind, _, name = to.partition(":")
        assert export(run, f"{kind}:{tmp_path / name}", capsys)["moments"] == 3
    assert len(export_readers.texts(tmp_path / "logs")) == 3
    assert len(export_readers.instants(tmp_path / "a.pftrace")) == 3
    assert pq.read_table(tmp_path / "out" / "moments.parquet")["step"].to_pylist() == [None, 2**62, 3]
    with receiver() as received:
        export(run, f"otlp:{received.url}", capsys)
    assert {facts["kind"] for facts, _, _ in received.points()} == {"checkpoint", "note", "from the future"}


#: Runs the command where files may have so many bytes.
LIMITED = """
import resource, sys
from penstock.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("kind", ["tensorboard", "parquet", "perfetto"])
def test_an_export_without_room_goes_on_when_there_is_some(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    """Goal: a full disk costs nothing but time. Method: files that may not grow beyond 5 kB, and the same again without a limit."""
    run, place = tmp_path / "run", tmp_path / "target"
    recorded(run, [range(500)], 1)
    words = ["runs", "export", str(run), "--to", f"{kind}:{place}"]
    command = [sys.executable, "-c", LIMITED, "5000", *words]
    # Python would cut its own compiled files off at the limit, and find them broken ever after.
    limited = {**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=limited, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert export(run, f"{kind}:{place}", capsys)["steps"] == 500
    counts = {
        "tensorboard": lambda: len(export_readers.scalars(place, "loss")),
        "parquet": lambda: len(export_readers.table(place)),
        "perfetto": lambda: len(export_readers.steps_of(place, 0)),
    }
    assert counts[kind]() == 500
