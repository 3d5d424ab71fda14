"""What the device at hand multiplies, measured: a short burst, and what it keeps up.

A burst is the best of many shapes on a device that was cool; sustained is the rate of the last half of several seconds of the
best shape, after clocks have fallen to what power and heat allow.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from penstock.observe.peaks import peak_of

#: Square sizes that are tried; processors have smaller ones, because they are a thousand times slower.
_GPU_SIZES = (4096, 6144, 8192, 12288)
_CPU_SIZES = (256, 512, 1024)
#: Larger sizes are not tried once a product takes this long.
_ONCE_S_MAX = 0.1
_SUSTAINED_S = 3.0
_BURST_S = 0.2


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """What one type of number reached, in FLOP/s."""

    device: str
    dtype: str
    burst: float
    sustained: float
    #: Side of the square matrices of the best burst.
    size: int
    #: The maker's figure; None when it is not known.
    peak: float | None

    def to_json(self) -> dict[str, Any]:
        """The rates as plain values."""
        return asdict(self)


def device_name() -> str:
    """The name of the device that would train: the GPU as its driver names it, else the processor."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "processor"


def measure_peaks(*, sustained_s: float = _SUSTAINED_S) -> Iterator[MeasuredPeak]:
    """Every type of number that the device multiplies, one after another."""
    on_gpu = torch.cuda.is_available()
    name = device_name()
    peak = peak_of(name)
    for dtype, multiply_of in _contenders(on_gpu):
        rates: dict[int, float] = {}
        for size in _GPU_SIZES if on_gpu else _CPU_SIZES:
            rates[size] = max(_rates(multiply_of(size), size, _BURST_S, on_gpu))
            if 2 * size**3 / rates[size] > _ONCE_S_MAX:
                break
        best = max(rates, key=lambda size: rates[size])
        steady = _rates(multiply_of(best), best, sustained_s, on_gpu)
        tail = steady[len(steady) // 2 :]
        figure = None if peak is None else peak.flops_per_s.get(dtype)
        yield MeasuredPeak(name, dtype, rates[best], sum(tail) / len(tail), best, figure)


def _contenders(on_gpu: bool) -> Iterator[tuple[str, Callable[[int], Callable[[], Any]]]]:
    yield "bfloat16", lambda size: _plain(size, torch.bfloat16, on_gpu)
    if on_gpu:
        yield "float16", lambda size: _plain(size, torch.float16, on_gpu)
        yield "tf32", _tf32
        if torch.cuda.get_device_capability() >= (8, 9):
            yield "float8", _float8
    yield "float32", lambda size: _plain(size, torch.float32, on_gpu)


def _plain(size: int, dtype: torch.dtype, on_gpu: bool) -> Callable[[], Any]:
    device = "cuda" if on_gpu else "cpu"
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    result = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=result)


def _tf32(size: int) -> Callable[[], Any]:
    multiply = _plain(size, torch.float32, on_gpu=True)

    def run() -> Any:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return multiply()
        finally:
            torch.set_float32_matmul_precision(before)

    return run


def _float8(size: int) -> Callable[[], Any]:
    left = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn)
    right = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16)


def _rates(multiply: Callable[[], Any], size: int, seconds: float, on_gpu: bool) -> list[float]:
    """FLOP/s of portions, until the time is over; each portion is long enough to be measured."""
    multiply()
    wait: Callable[[], object] = torch.cuda.synchronize if on_gpu else (lambda: None)
    wait()
    begun = time.perf_counter()
    multiply()
    wait()
    once = max(time.perf_counter() - begun, 1e-6)
    count = max(1, int(0.02 / once))
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not rates:
        begun = time.perf_counter()
        for _ in range(count):
            multiply()
        wait()
        rates.append(2 * size**3 * count / (time.perf_counter() - begun))
    return rates
