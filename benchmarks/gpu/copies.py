"""Bytes of tensors on an accelerator: do they arrive as they were, whatever is done to the tensors meanwhile, and how fast?

Checks what the tests cannot without a device, and raises if something is wrong. Run: `python -m benchmarks.gpu.copies OUT.json`.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock import _rust
from penstock.state.contract import Copy, Held
from penstock.torch.device import pinned_memory as pinning
from penstock.torch.device.cuda import cuda_mover
from penstock.torch.device.mover import SAFETENSORS_NAMES, as_bytes
from penstock.torch.tree.tensors import Findings, Holder, Leaf, held_of

#: Long enough that work which did not wait would be seen.
SLEEP_CYCLES = 20_000_000
TRIALS = 20


def arena(bytes_: int) -> memoryview:
    """Memory as the state room has it."""
    memory = _rust.Arena(bytes_)
    memory.touch(8)
    return memoryview(memory)


def copies(held: Held, host: memoryview, stretch: int) -> list[Copy]:
    """A held box in stretches."""
    return [Copy(held, at, host[at : min(held.bytes, at + stretch)]) for at in range(0, held.bytes, stretch)]


def check_forms(host: memoryview) -> int:
    """Every type, in order and strided, in stretches that cross from one pinned segment into the next; there and back."""
    done = 0
    for dtype in SAFETENSORS_NAMES:
        most = 2 if dtype is torch.bool else 256
        bits = torch.randint(0, most, (64, 48, 5 * dtype.itemsize), dtype=torch.uint8, device="cuda").view(
            dtype
        )
        for form in (bits, bits[1, 2, 3], bits[:0], bits.transpose(0, 2), bits[::2, 1:, ::3], bits[2].t()):
            (held,) = held_of("t", form, 0, 1)
            stretch = max(dtype.itemsize, held.bytes // 7 // dtype.itemsize * dtype.itemsize)
            expected = as_bytes(form.cpu()).numpy().tobytes()
            held.mover.take(copies(held, host, stretch)).wait()
            assert bytes(host[: held.bytes]) == expected, (dtype, form.shape)
            # Back from pinned memory, and from memory that nobody pinned or may write to.
            for source in (host, memoryview(expected)):
                empty = torch.zeros_like(form)
                (target,) = held_of("t", empty, 0, 1)
                copying = target.mover.put(copies(target, source, stretch))
                copying.guard()
                assert as_bytes(empty.cpu()).numpy().tobytes() == expected, (dtype, form.shape)
                copying.wait()
            done += 1
    return done


def check_cast(host: memoryview) -> None:
    """Stored in two bytes instead of four."""
    tensor, back = torch.randn(1000, 999, device="cuda"), torch.zeros(1000, 999, device="cuda")
    (held,) = Holder(Findings(0, 1)).held(Leaf("t", tensor, dtype="BF16"))
    (target,) = Holder(Findings(0, 1)).held(Leaf("t", back, dtype="BF16"))
    held.mover.take(copies(held, host, held.bytes)).wait()
    target.mover.put(copies(target, host, held.bytes)).wait()
    assert torch.equal(back, tensor.bfloat16().float())


def check_order(host: memoryview) -> None:
    """What is copied is what stood there when the copy was asked for: after work that was late, and before what came after."""
    tensor = torch.empty(12 << 20, device="cuda")
    for trial in range(TRIALS):
        for restless in (False, True):
            tensor.fill_(0)
            torch.cuda._sleep(SLEEP_CYCLES)
            tensor.fill_(trial)
            (held,) = Holder(Findings(0, 1)).held(Leaf("t", tensor, restless=restless))
            copying = held.mover.take(copies(held, host, held.bytes))
            if not restless:
                copying.guard()
            tensor.fill_(-1)
            copying.wait()
            assert (np.frombuffer(host[: held.bytes], np.float32) == trial).all()
        torch.cuda._sleep(SLEEP_CYCLES)
        tensor.fill_(-2)
        (held,) = held_of("t", tensor, 0, 1)
        begun: list[Any] = []
        other = threading.Thread(target=_put, args=(begun, held, host))
        other.start()
        other.join()
        begun[0].guard()
        assert bool((tensor == trial).all())
        begun[0].wait()


def _put(begun: list[Any], held: Held, host: memoryview) -> None:
    begun.append(held.mover.put(copies(held, host, held.bytes)))


def check_release(host: memoryview) -> None:
    """Memory that its owner gives up is not used again before it was copied."""
    for trial in range(TRIALS):
        tensor = torch.full((12 << 20,), float(trial), device="cuda")
        (held,) = held_of("t", tensor, 0, 1)
        bytes_, copying = held.bytes, held.mover.take(copies(held, host, held.bytes))
        del tensor, held
        torch.full((12 << 20,), -1.0, device="cuda")
        copying.wait()
        assert (np.frombuffer(host[:bytes_], np.float32) == trial).all()


def speed(count: int = 800, bytes_: int = 16 << 20) -> dict[str, float]:
    """Launching many copies, and their bytes."""
    tensors = [torch.randn(bytes_ // 4, device="cuda") for _ in range(200)]
    memory = arena(200 * bytes_)
    mover = cuda_mover(tensors[0].device)
    begun = time.perf_counter()
    mover.prepare(memory)
    pinned = time.perf_counter()
    holder = Holder(Findings(0, 1))
    held = [part for at in range(count) for part in holder.held(Leaf(str(at), tensors[at % 200]))]
    known = time.perf_counter()
    wanted = [Copy(part, 0, memory[at % 200 * bytes_ :][:bytes_]) for at, part in enumerate(held)]
    ready = time.perf_counter()
    copying = mover.take(wanted)
    launched = time.perf_counter()
    copying.wait()
    arrived = time.perf_counter()
    mover.release(memory)
    return {
        "pinning GB/s": 200 * bytes_ / (pinned - begun) / 1e9,
        "µs to describe a tensor": (known - pinned) / count * 1e6,
        "µs to launch a copy": (launched - ready) / count * 1e6,
        "GB/s": count * bytes_ / (arrived - ready) / 1e9,
    }


def main() -> None:
    """Check, measure and write."""
    host = arena(64 << 20)
    whole, pinning.SEGMENT_BYTES = pinning.SEGMENT_BYTES, 1 << 20
    mover = cuda_mover(torch.device("cuda", torch.cuda.current_device()))
    mover.prepare(host)
    forms = check_forms(host)
    check_cast(host)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            check_order(host)
            check_release(host)
    mover.release(host)
    pinning.SEGMENT_BYTES = whole
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "forms": forms, **speed()}
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
