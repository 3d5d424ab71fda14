"""How many threads a rank computes with: what its environment says, also where that was read before the fork.

The zygote runs with the variables of the ranks, because OpenMP reads them once, when it is loaded, and no call can change them for threads that
start later. Only OpenBLAS is held at one thread until here: it starts its threads when it is loaded.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import ModuleType

#: Names of the same function, by how the library was built.
SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "scipy_openblas_set_num_threads",
)
OPENMP = "OMP_NUM_THREADS"
#: The first that is set counts.
OPENBLAS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", OPENMP)
OF_TORCH = (OPENMP, "MKL_NUM_THREADS", "MKL_DYNAMIC")
#: Variables whose changes become effective here.
COUNTS = frozenset((*OPENBLAS, *OF_TORCH))


def set_counts(changes: dict[str, str | None], *, moved: bool) -> None:
    """Before the environment changes: set counts that the changes would have set in a fresh process."""
    before = dict(os.environ)
    after = {name: text for name, text in {**before, **changes}.items() if text is not None}
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and (moved or _differs(OF_TORCH, before, after)):
        torch.set_num_threads(_torch_threads(torch, after))
    if torch is None and numpy is None:
        return
    wanted = _openblas_threads(after)
    if wanted > 1:
        _set_openblas(wanted)


def follow(before: dict[str, str], after: dict[str, str], libraries: set[str]) -> None:
    """The program changed counts and imports these libraries now: as if they had been loaded now."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if "torch" in libraries and torch is not None and _differs(OF_TORCH, before, after):
        torch.set_num_threads(_torch_threads(torch, after))
    if "numpy" in libraries and numpy is not None and _differs(OPENBLAS, before, after):
        _set_openblas(_openblas_threads(after))


def _differs(names: tuple[str, ...], before: dict[str, str], after: dict[str, str]) -> bool:
    return any(before.get(name) != after.get(name) for name in names)


def _torch_threads(torch: ModuleType, environment: dict[str, str]) -> int:
    """What torch begins with: where it has MKL, what MKL would use, which by itself is not more than there are cores."""
    openmp = _count(environment.get(OPENMP))
    if not torch.backends.mkl.is_available():
        return openmp
    wanted = _count(environment["MKL_NUM_THREADS"]) if environment.get("MKL_NUM_THREADS") else openmp
    fixed = environment.get("MKL_DYNAMIC", "").lower() in ("false", "0", "no", "off")
    return wanted if fixed else min(wanted, _cores())


def _openblas_threads(environment: dict[str, str]) -> int:
    """What OpenBLAS begins with, which is not more than there are processors."""
    text = next((environment[name] for name in OPENBLAS if environment.get(name)), None)
    return min(_count(text), len(os.sched_getaffinity(0)))


def _count(text: str | None) -> int:
    # OpenMP allows a list, one number per level of nesting.
    first = (text or "").partition(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else len(os.sched_getaffinity(0))


def _cores() -> int:
    """Cores that we may run on; two processors of one core count once."""
    cores = set()
    for processor in os.sched_getaffinity(0):
        try:
            with open(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list") as file:
                cores.add(file.read().strip())
        except OSError:
            cores.add(str(processor))
    return len(cores)


def _set_openblas(threads: int) -> None:
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in SETTERS:
            if (setter := getattr(library, name, None)) is not None:
                setter(threads)
                break
