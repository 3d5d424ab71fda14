"""Proofs: a run that was interrupted is shown to be equal to one that was not, and what differs is named."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import NotEqual, RepetitionFailed, RepetitionImpossible, RunUnpinned, UsageError
from penstock.run.journal import step_records as records
from penstock.run.journal.step_records import Records, StepRecord, Whole
from penstock.run.proof import difference as differing
from penstock.run.proof.proof import differences, prove
from tests.conftest import ROOT
from tests.process.jobs import PENSTOCK
from tests.run.provable import STEPS, other_weights
from tests.torch.stream import Stream

PROGRAM = ROOT / "tests/run/provable.py"
PINNED = {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}


def lives(kind: str, stream: Stream, out: Path, kills: str = "") -> None:
    """One life after another, until one ends by itself."""
    command = [sys.executable, str(PROGRAM), kind, str(stream.folder), str(out), kills]
    for _ in range(kills.count(":") + 1):
        done = subprocess.run(
            command, env={**os.environ, **PINNED}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def killed(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in three lives."""
    out = tmp_path_factory.mktemp("proof") / "run"
    lives("numpy", stream, out, "0:6,0:9")
    return out


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda what: monkeypatch.setenv("PLANT", what)


def test_an_interrupted_run_is_proved(killed: Path) -> None:
    """Goal: R1, shown from the outside. Method: three lives, executed again in one; the run itself stays as it was."""
    before = sorted((path, path.stat().st_mtime_ns) for path in killed.rglob("*"))

    proof = prove(killed).require()

    assert (proof.first, proof.stop, proof.loaded, proof.lives) == (0, STEPS, None, 3)
    assert proof.compared == {
        "steps": STEPS,
        "batches": STEPS,
        "losses": STEPS,
        "parameters": STEPS,
        "checkpoints": 5,
        "tensors": 5,
    }
    assert proof.ratio is not None
    assert not proof.notes
    # Nothing of the run was touched, and what comes after the loop was not done again.
    assert sorted((path, path.stat().st_mtime_ns) for path in killed.rglob("*")) == before


def test_some_steps_are_proved_from_the_nearest_checkpoint(killed: Path, tmp_path: Path) -> None:
    proof = prove(killed, steps=(9, 11), keep=tmp_path / "kept")

    assert proof.equal
    assert (proof.first, proof.stop, proof.loaded) == (8, 11, 8)
    assert (tmp_path / "kept/records").is_dir()
    with pytest.raises(UsageError, match="must be an empty directory"):
        prove(killed, keep=tmp_path / "kept")


@pytest.mark.parametrize(
    ("plant", "kind", "step", "name"),
    [
        ("tensor@7", "parameters", 7, ""),
        ("dropout@6", "generator", 6, "dropout"),
        ("python@6", "generator", 6, "python"),
        ("outside@9", "loss", 9, "loss"),
        ("variable", "setting", None, "pinned/variables/OPENBLAS_NUM_THREADS"),
        ("seed", "setting", None, "seed"),
    ],
)
def test_a_planted_difference_is_named(
    killed: Path, planted: Callable[[str], None], plant: str, kind: str, step: int | None, name: str
) -> None:
    """Goal: the first item that differs is named. Method: the program does something else when it is executed again."""
    planted(plant)

    proof = prove(killed)

    first = proof.differences[0]
    assert (first.kind, first.step, first.name) == (kind, step, name)
    with pytest.raises(NotEqual, match="not bit-equal"):
        proof.require()


def test_the_tensor_and_its_place_are_named(killed: Path, planted: Callable[[str], None]) -> None:
    """Goal: which tensor. Method: one bit of one element is flipped after step 7; the checkpoint of step 8 has it."""
    planted("tensor@7")

    proof = prove(killed, steps=(6, 10))

    assert proof.differences[0].more == {"at the checkpoint of step 8": "weights"}
    tensor = next(difference for difference in proof.differences if difference.kind == "tensor")
    assert (tensor.step, tensor.name) == (8, "weights")
    assert tensor.repeated == "1 of 64 elements differ"


def test_another_recipe_is_named_down_to_the_row(
    killed: Path, stream: Stream, planted: Callable[[str], None]
) -> None:
    """Goal: which row. Method: other weights from step 4 on; the first row with other tokens is the one that is named."""
    planted("weights")

    diffs = prove(killed, steps=(0, 8)).differences

    assert (diffs[0].kind, diffs[0].name) == ("setting", "recipe")
    batch = next(difference for difference in diffs if difference.kind == "batch")
    assert batch.step is not None
    assert batch.step >= 4
    one, other = (
        ps.batch_at(recipe, step=batch.step, registry=stream.registry)
        for recipe in (stream.recipe(), other_weights(stream.recipe()))
    )
    rows = (one["tokens"] != other["tokens"]).any(axis=1)
    assert batch.more["row"] == rows.argmax()
    assert batch.more["recorded from"] == [origin.to_json() for origin in one.origin(batch.more["row"])][:3]
    assert batch.more["now from"] != batch.more["recorded from"]


def test_a_record_of_another_batch_is_told(killed: Path, tmp_path: Path) -> None:
    """Goal: the run itself read something else. Method: in a copy of its records, step 2 has another digest of its batch."""
    copy = tmp_path / "run"
    shutil.copytree(killed, copy)
    shutil.rmtree(copy / "records")
    writer = Records(copy, 2, (0, 1), (0, 1))
    writer.mark(0)
    for step, record in records.read_rank(killed, 0).items():
        writer.write(record if step != 2 else replace(record, batch="f" * 32))
    writer.close()

    (difference,) = prove(copy, steps=(0, 4)).differences

    assert (difference.kind, difference.step) == ("batch", 2)
    assert "recorded batch cannot be rebuilt" in difference.more["rows"]


def test_what_cannot_be_proved_is_refused(
    killed: Path, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOSE", "1")
    lives("numpy", stream, tmp_path / "loose")
    with pytest.raises(RunUnpinned, match="deterministic=True") as caught:
        prove(tmp_path / "loose")
    assert len(caught.value.unpinned) == 1
    assert prove(tmp_path / "loose", anyway=True).equal
    with pytest.raises(RepetitionImpossible, match="not recorded"):
        prove(killed, steps=(100, 200))
    with pytest.raises(UsageError, match=r"steps must be .*, got 3:2"):
        prove(killed, steps=(3, 2))
    monkeypatch.setenv("PLANT", "crash")
    with pytest.raises(RepetitionFailed, match="the file of weights is gone"):
        prove(killed)
    monkeypatch.setenv("PLANT", "elsewhere")
    with pytest.raises(RepetitionFailed, match="makes a run in"):
        prove(killed)


@pytest.mark.parametrize(
    ("plant", "kind", "name"),
    [
        ("", "", ""),
        ("threads@5", "generator", "threads"),
        ("tensor@7", "parameters", ""),
    ],
)
def test_a_gang_is_proved_by_a_gang(
    gang: Path, planted: Callable[[str], None], plant: str, kind: str, name: str
) -> None:
    """Goal: the same with torch on two supervised ranks, of which one was killed."""
    planted(plant)

    proof = prove(gang, steps=(4, 10))

    assert proof.compared["losses"] == 12
    if not plant:
        assert proof.require().lives == 2
        return
    first = proof.differences[0]
    assert (first.kind, first.step, first.name) == (kind, int(plant.partition("@")[2]), name)


@pytest.fixture(scope="module")
def gang(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of two ranks in two lives; its jobs, and those of proofs, are kept in a home of their own."""
    folder = tmp_path_factory.mktemp("gang")
    home = {"PENSTOCK_HOME": str(folder / "home")}
    before = os.environ.get("PENSTOCK_HOME")
    os.environ |= home
    words = ["run", "--ranks", "2", "--restarts", "2", "--", sys.executable, str(PROGRAM), "ddp"]
    done = subprocess.run(
        [*PENSTOCK, *words, str(stream.folder), str(folder / "run"), "1:7"],
        env={**os.environ, **PINNED},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    yield folder / "run"
    if before is None:
        del os.environ["PENSTOCK_HOME"]
    else:
        os.environ["PENSTOCK_HOME"] = before


def whole(step: int, record: StepRecord) -> Whole:
    return Whole(step, 0, record.batch, {0: record})


@given(
    steps=st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True),
    data=st.data(),
)
def test_the_first_difference_is_the_earliest_and_the_cause_comes_first(
    steps: list[int], data: st.DataObject
) -> None:
    """Goal: the order of what is named. Method: equal records, of which some items of some steps are changed."""
    kinds = ["batch", "generator", "loss", "grad_norm", "parameters"]
    changed = data.draw(
        st.dictionaries(st.sampled_from(steps), st.sets(st.sampled_from(kinds), min_size=1), max_size=4)
    )
    good, other = {}, {}
    for step in sorted(steps):
        values = {
            "batch": f"{step:032x}",
            "loss": step / 3,
            "grad_norm": float(step),
            "parameters": f"{step:032x}",
            "stands": {"numpy": 1, "torch": 2},
        }
        good[step] = whole(step, StepRecord(step, **values))
        if "batch" in changed.get(step, ()):
            values["batch"] = "f" * 32
        if "generator" in changed.get(step, ()):
            values["stands"] = {"numpy": 1, "torch": 3}
        if "loss" in changed.get(step, ()):
            values["loss"] = -1.0
        if "grad_norm" in changed.get(step, ()) and "loss" not in changed[step]:
            values["grad_norm"] = -1.0
        if "parameters" in changed.get(step, ()):
            values["parameters"] = "f" * 32
        other[step] = whole(step, StepRecord(step, **values))

    diffs = differing.steps(good, other)

    assert differing.steps(good, good) == []
    expected = [
        (step, kind)
        for step in sorted(changed)
        for kind in kinds
        if kind in changed[step] and not (kind == "grad_norm" and "loss" in changed[step])
    ]
    assert [(difference.step, difference.kind) for difference in diffs] == expected


def test_two_runs_are_compared(killed: Path, stream: Stream, tmp_path: Path) -> None:
    lives("numpy", stream, tmp_path / "whole")
    assert differences(killed, tmp_path / "whole") == []
    shutil.rmtree(tmp_path / "whole/records")
    assert {difference.kind for difference in differences(killed, tmp_path / "whole")} == {"step"}
