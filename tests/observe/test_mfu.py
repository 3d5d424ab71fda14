"""MFU: a number by a named convention, or the reason why there is none."""

import pytest

from penstock.observe.flops import StepFlops, Unknown
from penstock.observe.mfu import Mfu, MfuImpossible, MfuRefused, mfu_of
from penstock.observe.peaks import peak_of
from penstock.observe.peaks.device import parse_limits
from penstock.observe.peaks.table import peaks

H100 = "NVIDIA H100 80GB HBM3"


def step(useful: dict[str, int], executed: dict[str, int] | None = None) -> StepFlops:
    return StepFlops(useful, executed or useful, executed or useful, tokens=1, real_tokens=1)


def test_mfu_is_the_ideal_time_over_the_time_from_begin_to_begin() -> None:
    answer = mfu_of(step({"bfloat16": 989_400 * 10**9}), 2 * 10**9, H100)

    assert isinstance(answer, Mfu)
    assert answer.mfu == pytest.approx(0.5, rel=1e-12)
    assert answer.to_json()["kind"] == "mfu"


def test_types_that_are_mixed_add_their_ideal_times() -> None:
    peak = peak_of(H100)
    assert peak is not None
    counts = {"bfloat16": 10**14, "float8": 3 * 10**14, "tf32": 10**13}
    answer = mfu_of(step(counts), 10**9, H100)

    assert isinstance(answer, Mfu)
    assert answer.mfu == pytest.approx(
        sum(count / peak.flops_per_s[dtype] for dtype, count in counts.items())
    )


def test_recomputation_is_in_hfu_alone_and_the_measured_peak_has_its_own_share() -> None:
    answer = mfu_of(
        step({"bfloat16": 3 * 10**14}, {"bfloat16": 4 * 10**14}), 10**9, H100, measured={"bfloat16": 7e14}
    )

    assert isinstance(answer, Mfu)
    assert answer.hfu / answer.mfu == pytest.approx(4 / 3)
    assert answer.of_measured == pytest.approx(3 / 7)


def test_devices_share_the_work() -> None:
    one, eight = (mfu_of(step({"bfloat16": 10**14}), 10**9, H100, devices=count) for count in (1, 8))

    assert isinstance(one, Mfu)
    assert isinstance(eight, Mfu)
    assert one.mfu == pytest.approx(8 * eight.mfu)


@pytest.mark.parametrize(
    ("flops", "step_ns", "device", "reason"),
    [
        (step({"bfloat16": 1}), 10**9, "NVIDIA Rumoured X900", "unknown device"),
        (step({"bfloat16": 1}), 10**9, "NVIDIA H100", "unknown device"),
        (step({"bfloat16": 1}), 10**9, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "slice of a device"),
        (step({"float4": 1}), 10**9, H100, "no peak for type"),
        (step({"bfloat16": 1}), None, H100, "no time"),
        (step({"bfloat16": 1}), 0, H100, "no time"),
        (None, 10**9, H100, "tokens not reported"),
        (
            StepFlops(None, None, None, 1, 1, unknown=(Unknown("mixer", "mamba::scan", "no formula"),)),
            10**9,
            H100,
            "unknown operator",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_the_reason(
    flops: StepFlops | None, step_ns: int | None, device: str, reason: str
) -> None:
    """O7, O3: a foreign device, a missing operator and missing tokens give a reason and never a number."""
    answer = mfu_of(flops, step_ns, device)

    assert isinstance(answer, MfuRefused)
    assert answer.reason == reason
    assert answer.to_json() == {"kind": "refused", "reason": reason, "detail": answer.detail}


def test_above_the_peak_is_impossible_and_names_device_type_flops_and_time() -> None:
    """O3: 152 % is no number."""
    answer = mfu_of(step({"bfloat16": 15 * 10**14}), 10**9, H100)

    assert isinstance(answer, MfuImpossible)
    text = str(answer)
    assert all(part in text for part in (H100, "bfloat16", "1.5e+15 FLOPs", "1000.000 ms", "989.4 TFLOP/s"))


def test_executed_flops_above_the_peak_are_impossible_too() -> None:
    answer = mfu_of(step({"bfloat16": 9 * 10**14}, {"bfloat16": 10**15}), 10**9, H100)

    assert isinstance(answer, MfuImpossible)


def test_every_figure_has_a_source_and_is_dense() -> None:
    known = {"float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8"}
    for peak in peaks().values():
        assert peak.source
        assert set(peak.flops_per_s) <= known
        # The sparse figure for bfloat16 would be as large as the dense one for float8.
        if "float8" in peak.flops_per_s:
            assert peak.flops_per_s["bfloat16"] < 0.6 * peak.flops_per_s["float8"]


def test_names_match_exactly() -> None:
    assert peak_of("NVIDIA H200") is not None
    for name in ("nvidia h200", "NVIDIA H200 ", "H200", "NVIDIA H200 141GB"):
        assert peak_of(name) is None


def test_caps_and_slices_are_noticed() -> None:
    """Method: what nvidia-smi prints for a capped device, one with MIG, and one that does not say."""
    text = (
        "NVIDIA H100 80GB HBM3, Disabled, 500.00, 700.00\n"
        "NVIDIA A100-SXM4-80GB, Enabled, 400.00, 400.00\n"
        "NVIDIA GeForce RTX 4090, [N/A], [N/A], 450.00\n"
    )
    capped, sliced, silent = parse_limits(text)

    assert capped.is_capped
    assert "500 of 700 W" in capped.notes[0]
    assert sliced.mig
    assert not sliced.is_capped
    assert silent.notes == ()
