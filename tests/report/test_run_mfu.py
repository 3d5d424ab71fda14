"""The MFU of a run is what its rows counted over what its devices could do; whatever is not known is a reason, never a number (O3, O7)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.observe.flops import StepFlops
from penstock.observe.steps import StepRecorder, read_steps
from penstock.observe.steps.flop_record import FlopRecord, read_flop_notes
from penstock.report.accounts.account_names import UNKNOWN
from penstock.report.diagnosis.observation import RankSteps, observation_of
from penstock.report.run_mfu import run_mfu

BF16, FP8 = 989.5e12, 1979e12


@dataclass(frozen=True)
class Counts:
    """Of a model that costs the same in every step."""

    of_type: dict[str, int]
    unknown: tuple[Any, ...] = ()

    def step(self, batch: object) -> StepFlops:
        if batch is None:
            raise ValueError("there is no batch")
        more = {dtype: 2 * count for dtype, count in self.of_type.items()}
        return StepFlops(self.of_type, more, more, 8, 8, self.unknown, ("documents see each other",))


def record(run: Path, counts: Counts, *, rank: int = 0, device: str = "NVIDIA H200", steps: int = 5) -> None:
    recorder = StepRecorder(run, 0, rank)
    record = FlopRecord(counts, recorder, device)
    for step in range(steps):
        recorder.begin(step)
        record.add("a batch" if step else None)
        recorder.end(step)
    recorder.close()


def answer(run: Path) -> dict[str, Any]:
    """Of rows alone; the first step, which could not be counted, is left out of them on every rank."""
    ranks = []
    for rows in read_steps(run):
        columns = {**rows.columns, "life": rows.columns["step"] * 0}
        ranks.append(RankSteps(rows.rank, columns))
    notes = read_flop_notes(run)
    counted = [
        type(note)(note.device, tuple(w for w in note.unknown if "batch" not in w), note.warnings)
        for note in notes
    ]
    return run_mfu(observation_of(ranks, 1), counted)


def test_types_add_up_by_their_peaks_over_ranks_and_the_time_of_counted_steps(tmp_path: Path) -> None:
    small = Counts({"bfloat16": 1_000_000, "float8": 3_000_000})
    record(tmp_path, small)
    record(tmp_path, small, rank=1)
    times = []
    for rows in read_steps(tmp_path):
        begin, end = rows.columns["begin"], rows.columns["end"]
        times.append([*(begin[1:] - begin[:-1]).tolist(), int(end[-1] - begin[-1])])
    slowest = sum(max(pair) for pair in list(zip(*times, strict=True))[1:])

    mfu = answer(tmp_path)

    ideal_s = 2 * 4 * (1_000_000 / BF16 + 3_000_000 / FP8)
    assert mfu["value"] == pytest.approx(ideal_s / (2 * slowest / 1e9))
    assert mfu["hfu"] == pytest.approx(2 * mfu["value"])
    assert (mfu["steps"], mfu["devices"], mfu["device"]) == (4, 2, "NVIDIA H200")
    assert mfu["flops"] == 2 * 4 * 4_000_000
    assert mfu["notes"] == ["documents see each other"]


def test_counts_beyond_64_bits_are_refused_as_impossible_and_not_wrapped(tmp_path: Path) -> None:
    record(tmp_path, Counts({"bfloat16": 1 << 61}))
    mfu = answer(tmp_path)
    assert mfu["value"] == UNKNOWN
    assert mfu["reason"].startswith("impossible: 1.845e+19 FLOPs in bfloat16")


@pytest.mark.parametrize(
    ("device", "counts", "reason"),
    [
        ("NVIDIA H900", Counts({"bfloat16": 5}), "unknown device"),
        ("NVIDIA H200", Counts({"float6": 5}), "unknown operator: numbers of type float6"),
        ("NVIDIA H200", Counts({"float4": 5}), "no peak for type"),
        ("NVIDIA H200", Counts({"bfloat16": 5}, ("odd::operator",)), "unknown operator: odd::operator"),
    ],
)
def test_what_is_not_known_is_a_reason(tmp_path: Path, device: str, counts: Counts, reason: str) -> None:
    record(tmp_path, counts, device=device)
    mfu = answer(tmp_path)
    assert mfu["value"] == UNKNOWN
    assert reason in mfu["reason"]


def test_ranks_of_different_devices_have_none(tmp_path: Path) -> None:
    record(tmp_path, Counts({"bfloat16": 5}))
    record(tmp_path, Counts({"bfloat16": 5}), rank=1, device="NVIDIA A100-SXM4-80GB")
    assert "ranks have different devices" in answer(tmp_path)["reason"]


def test_a_batch_that_cannot_be_counted_and_a_damaged_note_are_reasons(tmp_path: Path) -> None:
    record(tmp_path, Counts({"bfloat16": 5}))
    (note,) = read_flop_notes(tmp_path)
    assert note.unknown == ("the batch could not be counted: there is no batch",)
    (path,) = (tmp_path / "steps").glob("*.flops.json")
    path.write_text("{")
    (note,) = read_flop_notes(tmp_path)
    assert note.unknown == (f"{path.name} cannot be read",)
