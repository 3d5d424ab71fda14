"""Variables that a program sets for what it imports next, in a rank whose imports were done before it was forked.

`os.environ.update(config)` before `import torch` decides in a fresh process how many threads compute. In a fork torch is there already, so the
program's own first import of it is where the change has to become effective. That import is noticed without a hook that every import of the
program would go through (and whose frame every traceback of a failed import would show): Python asks the *spec* of a module that is there already
whether the module is still being initialised, so the specs of what was preloaded are given a class that listens. The zygote does that
once, before it forks.

What cannot be made effective (most that is no count of threads) was read when the library was loaded. Then the rank is executed again, as
if it had never been forked, if it has done nothing yet that others could have seen; else it says so, and its next life is executed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType

from .birth import Birth
from .footprint import Footprint
from .threads import COUNTS, follow

#: What a library reads while it is loaded, by how the names of variables begin.
READ_BY = {
    "numpy": ("OMP_", "OPENBLAS_", "GOTO_", "BLIS_", "MKL_", "NPY_"),
    "torch": ("OMP_", "MKL_", "KMP_", "GOMP_", "TORCH_", "PYTORCH_", "ATEN_", "DNNL_", "ONEDNN_"),
    "torch._dynamo": ("TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_COMPILE_", "TRITON_"),
}
#: Begin like those, but are read when they are needed.
READ_LATER = (
    "TORCH_NCCL_",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_CUDA_ARCH_LIST",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
#: Loading the first loads the second.
LOADS = {"torch": ("numpy",), "torch._dynamo": ("torch", "numpy")}
#: Parts of torch that are loaded with its compiler.
COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")


class _Listener:
    """What happens when a library is imported that is there already. Made in the zygote, and armed in a rank."""

    def __init__(self) -> None:
        self.heard: Callable[[str], None] | None = None


_LISTENER = _Listener()
_SPECS: dict[str, type[ModuleSpec]] = {}


def _listening(library: str) -> type[ModuleSpec]:
    """A class of specs that tells of the first import of a library, and then is like any other."""

    def _initializing(self: ModuleSpec) -> bool:
        if _LISTENER.heard is not None:
            _LISTENER.heard(library)
        return False

    def set_it(self: ModuleSpec, value: bool) -> None:
        self.__dict__["_initializing"] = value

    body = {
        "__slots__": (),
        "__module__": ModuleSpec.__module__,
        "_initializing": property(_initializing, set_it),
    }
    return type("ModuleSpec", (ModuleSpec,), body)


def listen() -> None:
    """In the zygote: let every module tell whose import would load one of the libraries."""
    present = [library for library in READ_BY if library in sys.modules]
    _SPECS.update({library: _listening(library) for library in present})
    for name, library in _readers(present).items():
        spec = sys.modules[name].__spec__ if _is_plain(name) else None
        if type(spec) is ModuleSpec:
            # As it is, with another class.
            spec.__class__ = _SPECS[library]


def _readers(present: list[str]) -> dict[str, str]:
    """Modules that are there, with the library that their import would load in a fresh process; those of the standard library are not among them."""
    library_by_module = {
        name: library for name in list(sys.modules) if (library := _part_of(name, present)) is not None
    }
    standard = sys.stdlib_module_names
    others = [
        name
        for name in list(sys.modules)
        if name not in library_by_module and name.partition(".")[0] not in standard
    ]
    uses = {name: _used_by(sys.modules[name]) for name in others if _is_plain(name)}
    order = list(READ_BY)
    # Who uses a reader is one, of what loads most; as often as a module may use another that does.
    for _ in range(8):
        candidates = {
            name: [library_by_module[used] for used in used_by if used in library_by_module]
            for name, used_by in uses.items()
        }
        more = {
            name: max(libraries, key=order.index)
            for name, libraries in candidates.items()
            if libraries and name not in library_by_module
        }
        if not more:
            break
        library_by_module.update(more)
    return library_by_module


def _part_of(name: str, present: Iterable[str]) -> str | None:
    if "torch._dynamo" in present and name.startswith(COMPILER):
        return "torch._dynamo"
    top = name.partition(".")[0]
    return top if top in present else None


def _is_plain(name: str) -> bool:
    """Whether looking at a module does nothing: some are other objects, or are loaded by that."""
    module = sys.modules[name]
    return isinstance(module, ModuleType) and type(module).__name__ != "_LazyModule"


def _used_by(module: ModuleType) -> set[str]:
    """Modules that a module has names of: what it imported, or where its functions and classes are from."""
    kinds = (FunctionType, type)
    values = list(vars(module).values())
    modules = {value.__name__ for value in values if isinstance(value, ModuleType)}
    return modules | {str(value.__module__) for value in values if isinstance(value, kinds)}


def arm(birth: Birth) -> None:
    """In a rank, before its program: from now on imports of the libraries are noticed."""
    if _SPECS:
        _LISTENER.heard = _Watch(birth).heard


class _Watch:
    """What a rank began with, and what to do when a library is imported after something changed."""

    def __init__(self, birth: Birth) -> None:
        self.birth = birth
        self.pid = os.getpid()
        self.began = dict(os.environ)
        #: What the libraries know, as far as they were told since.
        self.known = dict(os.environ)
        self.footprint = Footprint(birth)
        self.waiting = set(_SPECS)

    def heard(self, library: str) -> None:
        """A library is imported, the first time by the program."""
        if library not in self.waiting:
            return
        loaded = {library, *LOADS.get(library, ())} & self.waiting
        self.waiting -= loaded
        for name in loaded:
            # Further imports are as quick as ever.
            with contextlib.suppress(AttributeError):  # Two threads may import at once.
                del _SPECS[name]._initializing  # type: ignore[attr-defined]
        if not self.waiting:
            _LISTENER.heard = None
        changed = self._changed(loaded)
        if not changed:
            return
        rest = [name for name in changed if name not in COUNTS]
        if rest and os.getpid() == self.pid:
            self._begin_again(rest)
        now = dict(os.environ)
        follow(self.known, now, loaded)
        self.known = now

    def _changed(self, loaded: set[str]) -> list[str]:
        starts = tuple(start for library in loaded for start in READ_BY[library])
        names = sorted(name for name in {*os.environ, *self.known} if name.startswith(starts))
        changed = (name for name in names if os.environ.get(name) != self.known.get(name))
        return [name for name in changed if not name.startswith(READ_LATER)]

    def _begin_again(self, names: list[str]) -> None:
        """Be executed, if nothing was done yet; else say that it would have been needed."""
        _flush()
        listing = ", ".join(names)
        seen = self.footprint.seen()
        self._write_down(f"the program sets {listing}, which is read when something is imported")
        seen = seen or self._execute()
        sys.stderr.write(
            f"penstock: {listing} changed in a rank that was forked with its imports done, and the rank is not executed again because "
            f"{seen}; that has no effect in this life, and the next one is executed (--zygote never executes all)\n"
        )

    def _execute(self) -> str:
        """As the agent would have done it. Comes back only with why that failed."""
        request = self.birth.request
        try:
            os.chdir(request["directory"])
            os.execvpe(request["command"][0], request["command"], self.began)  # noqa: S606 - what the agent executes
        except OSError as problem:
            return f"that failed: {problem.strerror}"

    def _write_down(self, why: str) -> None:
        """For the agent, who looks before the next life of the role."""
        folder, role = self.began.get("PENSTOCK_JOB_DIRECTORY"), self.began.get("PENSTOCK_ROLE")
        if folder and role:
            # Without it the next life is forked again, and says the same.
            with contextlib.suppress(OSError), open(os.path.join(folder, f"executed-{role}"), "x") as file:
                file.write(why)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # There may be none, or its reader is gone.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
