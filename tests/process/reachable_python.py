"""A Python that any user can reach: the interpreter of an environment may lie where only its owner looks."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from penstock.process.job.fork_choice import ENTRY

#: Large, and of no use to a rank of the campaign.
LEFT_OUT = shutil.ignore_patterns(
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "config-*", "*.pyc"
)


def reachable_python(home: Path) -> tuple[Path, dict[str, str]]:
    """The interpreter and the standard library, copied into ``home`` once; the variables that it needs to find them."""
    place = home / "python"
    interpreter = place / "bin" / "python3"
    if not place.exists():
        library = Path(sysconfig.get_path("stdlib"))
        shutil.copytree(library, place / "lib" / library.name, ignore=LEFT_OUT)
        interpreter.parent.mkdir()
        shutil.copy(Path(sys.executable).resolve(), interpreter)
        libraries = Path(sysconfig.get_config_var("LIBDIR"))
        for shared in libraries.glob(f"libpython{sys.version_info.major}.*.so*"):
            shutil.copy(shared, place / "lib")
    return interpreter, {"PYTHONHOME": str(place), "LD_LIBRARY_PATH": str(place / "lib")}


def reachable_zygote(home: Path, job_directory: Path) -> None:
    """What a warm Python begins with, copied into ``home``, where the job then finds it."""
    place = home / "zygote"
    if not place.exists():
        shutil.copytree(ENTRY.parent, place, ignore=LEFT_OUT)
    path = job_directory / "job.json"
    path.write_text(path.read_text().replace(os.fspath(ENTRY), os.fspath(place / ENTRY.name)))
