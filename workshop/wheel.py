"""Builds the one wheel that ships, and tries it where there is no compiler and no checkout.

`--profile dev` reuses what the tests compiled already (the tests do that); the default is the optimised build. Only the
last step, linking, is done by zig: it knows the symbols of every glibc, so that what is linked here runs on older systems.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from checkout import record_row
from rust import AGENT, PYO3_CONFIG, built

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# The oldest glibc that the wheel runs with: that of RHEL 8 and its kin.
GLIBC = (2, 28)
PLATFORM = f"manylinux_{GLIBC[0]}_{GLIBC[1]}"
AGENT_IN_WHEEL = "penstock/process/bin/penstock-agent"
REQUIRED = (
    "penstock/_rust.abi3.so",
    "penstock/_rust/__init__.pyi",
    "penstock/_rust/feed.pyi",
    AGENT_IN_WHEEL,
    "penstock/py.typed",
    "penstock/view/web/static/index.html",
)


def main() -> int:
    """Build, look inside, install into a clean environment, run a smoke test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args()
    wheel = build(chosen.profile, chosen.out)
    look_inside(wheel)
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as folder:
        smoke(wheel, Path(folder))
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB) installs and runs in a clean environment")
    return 0


def build(profile: str, out: Path) -> Path:
    """The wheel of this checkout, whose own extension and agent stay as they are."""
    for old in out.glob("*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="penstock-link-") as folder:
        link = ["-C", f"linker={linker(Path(folder))}"]
        common: list[str | Path] = ["--locked", "--profile", profile]
        agent: list[str | Path] = ["cargo", "rustc", "--package", "penstock-process", "--bin", AGENT.name]
        # Cargo forgets `strip` for a package that has a profile of its own.
        strip = ["-C", "strip=symbols"]
        subprocess.run([*agent, *common, "--", *link, *strip], cwd=ROOT, check=True)
        extension: list[str | Path] = [BIN / "maturin", "build", "--compatibility", PLATFORM, "--out", out]
        environment = {**os.environ, "PYO3_CONFIG_FILE": str(PYO3_CONFIG)}
        subprocess.run([*extension, *common, "--", *link], cwd=ROOT, env=environment, check=True)
    (wheel,) = out.glob("*.whl")
    replace(wheel, AGENT_IN_WHEEL, (built(profile) / AGENT.name).read_bytes())
    return wheel


def linker(folder: Path) -> Path:
    """A program that links as `cc` does, for the oldest glibc; maturin turns what rustc asks for into what zig understands."""
    program = folder / "cc"  # rustc tells by its name which arguments a linker takes
    target = f"{os.uname().machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    command = f'{shlex.quote(str(BIN / "maturin"))} zig cc -- "$@" -target {target}'
    # maturin looks for zig's module in the Python that comes first in the path.
    program.write_text(f'#!/bin/sh\nPATH={shlex.quote(str(BIN))}:"$PATH" exec {command}\n')
    program.chmod(0o755)
    return program


def replace(wheel: Path, name: str, content: bytes) -> None:
    """Give a file of a wheel another content."""
    beside = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            kept = old.read(entry)
            if entry.filename == name:
                kept = content
            elif entry.filename.endswith(".dist-info/RECORD"):
                rows = kept.decode().splitlines()
                rows = [record_row(name, content) if row.startswith(f"{name},") else row for row in rows]
                kept = ("\n".join(rows) + "\n").encode()
            new.writestr(entry, kept)
    beside.replace(wheel)


def look_inside(wheel: Path) -> None:
    """The extension, its stubs, the agent and the web bundle are in it, for every Python from 3.11 on and old systems."""
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in REQUIRED if name not in names]
    if missing or f"-cp311-abi3-{PLATFORM}_" not in wheel.name:
        raise SystemExit(f"error: {wheel.name} is not as it should be, missing {missing}")


def smoke(wheel: Path, folder: Path) -> None:
    """Install without a compiler and run what a first user runs."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip: list[str | Path] = [
        folder / "env/bin/pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        ROOT / "constraints.txt",
    ]
    subprocess.run([*pip, f"{wheel}[view]"], check=True)
    penstock = folder / "env/bin/penstock"
    for words in (["--version"], ["doctor", "--json"], ["run", "--ranks", "2", "--", "true"], ["demo"]):
        subprocess.run([penstock, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    page = "from penstock.view.web.server import STATIC; assert (STATIC / 'index.html').exists()"
    subprocess.run([folder / "env/bin/python", "-c", page], cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
