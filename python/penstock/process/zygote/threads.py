"""How many threads a rank computes with: what its environment says, also where that was read before the fork.

The zygote runs with the variables of the ranks, because OpenMP reads them once, when it is loaded, and no call can change them for threads that
start later. Only OpenBLAS is held at one thread until here: it starts its threads when it is loaded.
"""

from __future__ import annotations

import ctypes
import os
import sys

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


def set_counts(changes: dict[str, str | None], *, moved: bool) -> None:
    """Before the environment changes: set counts that the changes would have set in a fresh process."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is None and numpy is None:
        return
    after = {name: changes[name] if name in changes else os.environ.get(name) for name in OPENBLAS}
    if torch is not None and (moved or os.environ.get(OPENMP) != after[OPENMP]):
        torch.set_num_threads(_count(after[OPENMP]))
    wanted = _count(next((text for text in after.values() if text), None))
    if wanted > 1:
        _set_openblas(wanted)


def _count(text: str | None) -> int:
    # OpenMP allows a list, one number per level of nesting.
    first = (text or "").partition(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else len(os.sched_getaffinity(0))


def _set_openblas(threads: int) -> None:
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in SETTERS:
            if (setter := getattr(library, name, None)) is not None:
                setter(threads)
                break
