"""When a process may be forked and its children called fresh. Each rule is a fault that was seen with real libraries.

A second thread does not exist in the child, but the locks that it held do. A device that was opened before the fork does not work after
it. A descriptor that a library keeps open would be shared by all ranks. A file beside the user's script that has the name of a
module which is imported already would not be found.
"""

from __future__ import annotations

import os
import sys

from .preload import Unfit

#: Open files that may be shared: reading them at the same time disturbs nobody.
HARMLESS = frozenset({"/dev/null", "/dev/urandom", "/dev/random", "/dev/zero"})


def descriptors() -> dict[int, str]:
    """What is open, by number."""
    open_files = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            open_files[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            # The descriptor of the listing itself.
            continue
    return open_files


def check(before: dict[int, str], after_preload: dict[int, str]) -> None:
    """Raise with the first rule that is broken."""
    tasks = [task for task in os.listdir("/proc/self/task") if task != str(os.getpid())]
    if tasks:
        raise Unfit(f"an import started threads: {', '.join(sorted(map(_thread_name, tasks)))}")
    opened = {
        fd: what for fd, what in after_preload.items() if before.get(fd) != what and what not in HARMLESS
    }
    for fd, what in sorted(opened.items()):
        device = "a device, " if what.startswith("/dev/") else ""
        raise Unfit(f"an import keeps {device}{what} open as descriptor {fd}")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise Unfit("an import initialised CUDA, which does not survive a fork")


def rehearse() -> None:
    """Fork once and ask the child whether its libraries consider themselves broken by that."""
    child = os.fork()
    if child == 0:
        torch = sys.modules.get("torch")
        bad = torch is not None and any(
            getattr(getattr(torch, device, None), "_is_in_bad_fork", bool)() for device in ("cuda", "xpu")
        )
        os._exit(1 if bad else 0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise Unfit("an import asked for devices, so that torch refuses them after a fork")


def loaded_from() -> dict[str, str]:
    """Where each top-level module was loaded from. Built-in and frozen ones are found before any file and left out."""
    origins = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if "." not in name and file and spec is not None and spec.origin not in ("built-in", "frozen"):
            origins[name] = file
    return origins


def shadowed(folder: str | None, loaded: dict[str, str]) -> str | None:
    """What in the folder that the program looks into first has the name of a module that is here already."""
    if folder is None:
        return None
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for entry in sorted(names):
        stem, dot, _ = entry.partition(".")
        path = os.path.join(folder, entry)
        is_module = entry.endswith((".py", ".so")) or os.path.exists(os.path.join(path, "__init__.py"))
        if stem in loaded and is_module and (dot or os.path.isdir(path)):
            within = os.path.realpath(folder) + os.sep
            if not os.path.realpath(loaded[stem]).startswith(within):
                return f"{path} has the name of a module that is preloaded"
    return None


def _thread_name(task: str) -> str:
    """What Python calls a thread, or the system."""
    threading = sys.modules.get("threading")
    for thread in threading.enumerate() if threading is not None else ():
        if str(thread.native_id) == task:
            return str(thread.name)
    try:
        with open(f"/proc/self/task/{task}/comm") as file:
            return file.read().strip()
    except OSError:
        return "one that ended"
