"""Builds the extension and the process agent with one call of cargo, and puts them where the package looks for them.

One call, because cargo chooses the features of shared crates per call: two calls compiled some of them twice. Without
maturin, because that builds one crate per call and needs an environment first; `workshop/wheel.py` lets it make the wheel.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from steps import ROOT, Steps

AGENT = ROOT / "python/penstock/process/bin/penstock-agent"
EXTENSION = ROOT / "python/penstock/_rust.abi3.so"
# What pyo3 builds for; .cargo/config.toml names it for every call of cargo, maturin has to be told.
PYO3_CONFIG = ROOT / "crates/penstock-python/python.txt"
# The folder of a profile below target/, where it is not the profile's own name.
FOLDERS = {"dev": "debug"}
BAR = re.compile(r"\s*Building \[[^\]]*\] (\d+/\d+)(?:: (\S[^,]*))?")


def build(steps: Steps) -> None:
    """Build both for development, and put them into the package."""
    command = [
        "cargo",
        "build",
        "--locked",
        "--package",
        "penstock-python",
        "--lib",
        "--package",
        "penstock-process",
        "--bin",
        AGENT.name,
    ]
    steps.run("Rust", command, environment=environment(), reader=crates_done)
    place(built("dev") / "lib_rust.so", EXTENSION)
    place(built("dev") / AGENT.name, AGENT)


def sources() -> list[Path]:
    """What both depend on."""
    fixed = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml")
    crates = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("crates/*/Cargo.toml")]
    return [*sorted(crates), *(ROOT / name for name in fixed), PYO3_CONFIG]


def environment() -> dict[str, str]:
    """Cargo shows its progress bar in a pipe too."""
    bar = {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "120"}
    return {**os.environ, **bar, "CARGO_TERM_COLOR": "never"}


def crates_done(line: str) -> str | None:
    """How many of all crates are compiled, and one that is being compiled, from cargo's progress bar."""
    bar = BAR.match(line)
    if bar is None:
        return None
    count, name = bar.groups()
    return f"{count} crates" + (f" ({name.strip()})" if name else "")


def built(profile: str) -> Path:
    """Where cargo leaves what it builds with a profile."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / FOLDERS.get(profile, profile)


def place(built_file: Path, destination: Path) -> None:
    """Put a file where the package looks for it; who runs the old one keeps it."""
    destination.parent.mkdir(exist_ok=True)
    beside = destination.with_name(f".{destination.name}.new")
    shutil.copy(built_file, beside)
    beside.replace(destination)
