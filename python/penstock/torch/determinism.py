"""What decides bits in PyTorch, set where it can be set and named where it cannot.

Measured: one and two threads give different bits, and an H200 with default settings gives other bits in every run; deterministic
algorithms and a fixed cuBLAS workspace make them equal.
"""

import os
import zlib
from dataclasses import dataclass
from typing import Any

import torch

#: As cuBLAS documents it for results that can be repeated.
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES = (":4096:8", ":16:8")
_SEEDS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Pinned:
    """What is set now, and what could not be."""

    facts: dict[str, Any]
    unpinned: tuple[str, ...]


def pin(*, deterministic: bool, threads: int | None = None) -> Pinned:
    """Set algorithms, and threads if a number is given; call it before the device is used."""
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    late = deterministic and used and os.environ.get(WORKSPACE) not in _WORKSPACES
    if deterministic:
        os.environ.setdefault(WORKSPACE, _WORKSPACES[0])
        torch.use_deterministic_algorithms(True)
        # Filling fresh memory with NaN finds bugs and decides no bits of correct programs.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
    facts: dict[str, Any] = {
        "version": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
    }
    if torch.version.cuda is not None:
        facts |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    unpinned = []
    if late:
        unpinned.append(f"{WORKSPACE} was not set before the device was used")
    elif deterministic and os.environ[WORKSPACE] not in _WORKSPACES:
        unpinned.append(
            f"{WORKSPACE} is {os.environ[WORKSPACE]}, which does not give the same bits every time"
        )
    return Pinned(facts, tuple(unpinned))


def first_seed(number: int) -> None:
    """Set PyTorch's global generators once, also of devices that are not used yet."""
    torch.manual_seed(number & _SEEDS)


def seed(number: int) -> None:
    """Set PyTorch's global generators, on the CPU and on this rank's device. For every step: it takes a few microseconds.

    ``torch.manual_seed`` would note a stack trace per call for devices that are never used, which takes a millisecond and is kept.
    """
    torch.default_generator.manual_seed(number & _SEEDS)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(number & _SEEDS)


def standing(device: torch.device) -> dict[str, int]:
    """Where the global generators stand, in four bytes each, and how many threads there are."""
    facts = {"torch": zlib.crc32(torch.get_rng_state().numpy().tobytes()), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        facts["cuda"] = zlib.crc32(torch.cuda.get_rng_state(device).numpy().tobytes())
    return facts


def generator(number: int, device: torch.device) -> torch.Generator:
    """A generator of its own, on a device."""
    seeded = torch.Generator(device)
    seeded.manual_seed(number & _SEEDS)
    return seeded
