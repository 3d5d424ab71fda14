"""``python -m penstock.torch.device.speed gpu|cpu|auto SECONDS``: a short product and copy on every device, as JSON on standard output.

This is the part of a check of hosts that needs torch (``penstock.process.health.facts.compute_probe`` starts it). All GPUs of a host work at once, as
they do in training: what power and cooling cannot keep up shows. A product of small whole numbers has one right answer, so a device that computes
wrong shows as well.
"""

import statistics
import sys
import threading
import time
from typing import Any

import msgspec
import torch

from penstock.process.health.facts.compute_probe import READY, ComputeLook, DeviceSpeed

#: Sides of the square matrices; processors are a thousand times slower.
GPU_SIDE, CPU_SIDE, EXACT_SIDE = 8192, 512, 1024
COPY_BYTES = 1 << 30
#: Clocks rise, and fall again with heat; before that nothing is measured.
WARM_S, MEASURED_S, CPU_S = 0.5, 1.5, 0.3
PORTION_S = 0.05
WORDS_MAX = 200


def main(words: list[str]) -> int:
    """The program."""
    device, limit_s = words[0], float(words[1])
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    count = torch.cuda.device_count() if device != "cpu" else 0
    if count:
        look = ComputeLook(tuple(_gpus(count, limit_s)))
    elif device == "gpu":
        look = ComputeLook(unmeasured="torch sees no GPU")
    else:
        look = ComputeLook((_cpu(),))
    sys.stdout.buffer.write(msgspec.json.encode(look) + b"\n")
    return 0


def _gpus(count: int, limit_s: float) -> list[DeviceSpeed]:
    speeds: dict[int, DeviceSpeed] = {}
    until = time.monotonic() + 0.9 * limit_s

    def work(index: int) -> None:
        about = torch.cuda.get_device_properties(index)
        uuid = str(getattr(about, "uuid", "") or "")
        known = DeviceSpeed(device=f"GPU-{uuid}" if uuid else f"cuda:{index}", name=about.name)
        try:
            speeds[index] = msgspec.structs.replace(known, **_measure(index, until))
        except RuntimeError as problem:
            words = str(problem).partition("\n")[0][:WORDS_MAX]
            # Somebody else has its memory: that is no fault of the device.
            full = isinstance(problem, torch.cuda.OutOfMemoryError)
            speeds[index] = known if full else msgspec.structs.replace(known, problem=words)

    threads = [
        threading.Thread(target=work, args=(index,), name=f"penstock-gpu-{index}") for index in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [speeds[index] for index in sorted(speeds)]


def _measure(index: int, until: float) -> dict[str, Any]:
    torch.cuda.set_device(index)
    device = torch.device("cuda", index)
    wrong = not _is_exact(device)
    left, right = (torch.randn(GPU_SIDE, GPU_SIDE, device=device).to(torch.bfloat16) for _ in range(2))
    result = torch.empty_like(left)

    def multiply() -> object:
        return torch.mm(left, right, out=result)

    _portions(multiply, min(WARM_S, max(0.0, until - time.monotonic())))
    products = _portions(multiply, min(MEASURED_S, max(0.0, until - time.monotonic())))
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copies = _portions(lambda: target.copy_(source), min(MEASURED_S / 3, max(0.0, until - time.monotonic())))
    return {
        "wrong": wrong or not _is_exact(device),
        "product": 2 * GPU_SIDE**3 / statistics.median(products),
        "copy": COPY_BYTES / statistics.median(copies),
    }


def _portions(work: Any, seconds: float) -> list[float]:
    """Seconds that one piece takes, of several portions by the device's own clock."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    count, taken = 1, list[float]()
    until = time.monotonic() + seconds
    while not taken or time.monotonic() < until:
        begin.record()
        for _ in range(count):
            work()
        end.record()
        end.synchronize()
        one_s = max(begin.elapsed_time(end) / 1000 / count, 1e-7)
        taken.append(one_s)
        count = max(1, int(PORTION_S / one_s))
    # The first one has the start of kernels in it.
    return taken[1:] or taken


def _is_exact(device: torch.device) -> bool:
    """Whether sums of whole numbers are right to the last bit; they fit into every type that may be used on the way."""
    generator = torch.Generator().manual_seed(7)
    left, right = (
        torch.randint(-1, 2, (EXACT_SIDE, EXACT_SIDE), generator=generator).to(torch.float32)
        for _ in range(2)
    )
    sums = torch.mm(left.to(device), right.to(device)).sum(dim=1).double().cpu()
    wanted = left.double() @ right.double().sum(dim=1)
    return bool(torch.equal(sums, wanted))


def _cpu() -> DeviceSpeed:
    left, right = (torch.randn(CPU_SIDE, CPU_SIDE) for _ in range(2))
    result = torch.empty_like(left)
    torch.mm(left, right, out=result)
    begun, done = time.perf_counter(), 0
    while (taken := time.perf_counter() - begun) < CPU_S:
        torch.mm(left, right, out=result)
        done += 1
    return DeviceSpeed(
        device="cpu",
        product=2 * CPU_SIDE**3 * done / taken,
        wrong=not _is_exact(torch.device("cpu")),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
