"""Builds the one wheel that ships, and tries it where there is no compiler and no checkout.

`--profile dev` reuses what the tests compiled already (the tests do that); the default is the optimised build.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from prepare import agent_command, place_agent

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
REQUIRED = (
    "penstock/_rust.abi3.so",
    "penstock/_rust/__init__.pyi",
    "penstock/_rust/feed.pyi",
    "penstock/process/bin/penstock-agent",
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
    """The wheel of this checkout."""
    before = set(out.glob("*.whl"))
    for old in before:
        old.unlink()
    subprocess.run(agent_command(profile), cwd=ROOT, check=True)
    place_agent("debug" if profile == "dev" else profile)
    command: list[str | Path] = [BIN / "maturin", "build", "--profile", profile, "--locked", "--out", out]
    subprocess.run(command, cwd=ROOT, check=True)
    (wheel,) = out.glob("*.whl")
    return wheel


def look_inside(wheel: Path) -> None:
    """The extension, its stubs, the agent and the web bundle are in it, and it fits every Python from 3.11 on."""
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in REQUIRED if name not in names]
    if missing or "-cp311-abi3-" not in wheel.name:
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
