"""Makes a bare checkout ready: environment, packages, web bundle, extension, and what tests need from the system.

Runs on the machine's own Python with nothing installed. Each step states what it depends on; a step whose inputs
have the same content as last time is skipped, so that a second `make` starts at once. `prepare.py run` readies
the demo, `prepare.py test` readies the tests as well.
"""

from __future__ import annotations  # so that an old Python gets as far as the line that says so

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMPS = VENV / "stamps"
LOG_LINES = 40
AGENT = ROOT / "python/penstock/process/bin/penstock-agent"

# Tool -> the oldest version that works, and how to get it.
TOOLS = {
    "cargo": ((1, 85), "install Rust from rustup.rs, or your distribution's rustup package"),
    "cc": ((0,), "install a C compiler (Debian: apt-get install build-essential)"),
    "node": ((20, 0), "install Node.js 20 or newer (nodejs.org, or your distribution's package)"),
    "npm": ((9, 0), "install npm (it comes with Node.js)"),
}
# Peers whose pins contradict everybody else's; what the tests use of them works with the versions that we have.
WITHOUT_DEPENDENCIES = ["megatron-core==0.16.1", "mosaicml-streaming==0.13.0"]
# Command that a test needs -> Debian package that brings it.
SYSTEM_PACKAGES = {
    "chromium": "chromium",
    "faketime": "faketime",
    "gdb": "gdb",
    "mpirun": "openmpi-bin",
    "nginx": "nginx",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
}


class Unready(Exception):
    """Something is missing or failed; the message is the one line that the person reads."""


def main() -> int:
    """Ready the tree for `run` or `test`."""
    purpose = sys.argv[1] if len(sys.argv) > 1 else "run"
    if sys.version_info < (3, 11):  # noqa: UP036 - the machine decides which Python runs this
        print("error: Python 3.11 or newer is needed, this is {}.{}".format(*sys.version_info[:2]))
        return 2
    begun = time.monotonic()
    try:
        check_tools()
        did = [make_venv(), install_packages(purpose), build_web(), build_extension(), build_agent()]
        if purpose == "test":
            did.append(install_system_packages())
    except Unready as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if any(did):
        say(f"ready after {time.monotonic() - begun:.0f} s")
    return 0


def check_tools() -> None:
    """Every tool is there and new enough, or one line says which is not."""
    for tool, (oldest, remedy) in TOOLS.items():
        if shutil.which(tool) is None:
            raise Unready(f"{tool} is missing: {remedy}")
        if oldest == (0,):
            continue
        answer = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+)\.(\d+)", answer.stdout)
        version = (int(found[1]), int(found[2])) if found else (0, 0)
        if version < oldest:
            wanted = ".".join(map(str, oldest))
            raise Unready(f"{tool} {version[0]}.{version[1]} is too old, {wanted} is needed: {remedy}")


def make_venv() -> bool:
    """The environment itself."""
    if (VENV / "bin" / "pip").exists():
        return False
    remedy = "the venv module does not work here (Debian: apt-get install python3-venv)"
    step("environment in .venv", [sys.executable, "-m", "venv", str(VENV)], remedy=remedy)
    return True


def install_packages(purpose: str) -> bool:
    """What pyproject.toml asks for, at the versions of constraints.txt."""
    if any(stamped(f"packages-{each}", packages_mark(each)) for each in (purpose, "test")):
        return False
    command = [
        VENV / "bin" / "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        # Compiling every module of the frameworks takes longer than downloading them; Python does it for those it imports.
        "--no-compile",
        "-c",
        "constraints.txt",
    ]
    step(f"Python packages ({purpose})", [*command, *requirements(purpose)])
    if purpose == "test":
        step("Python packages without their dependencies", [*command, "--no-deps", *WITHOUT_DEPENDENCIES])
    stamp(f"packages-{purpose}", packages_mark(purpose))
    return True


def packages_mark(purpose: str) -> str:
    """What the packages of a purpose depend on. Those for the tests include those for everything else."""
    return digest([ROOT / "constraints.txt", ROOT / "pyproject.toml"], salt=" ".join(requirements(purpose)))


def requirements(purpose: str) -> list[str]:
    """The requirements of the project and of the extras that a purpose needs."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    chosen = [
        *project["dependencies"],
        *extras["view"],
        # The main job of the demo is a model on several ranks.
        *extras["torch"],
        *(r for r in extras["dev"] if r.startswith("maturin")),
    ]
    return [*chosen, *extras["dev"], *extras["peers"]] if purpose == "test" else chosen


def build_web() -> bool:
    """The browser bundle, into the package."""
    static = ROOT / "python/penstock/view/web/static"
    web = ROOT / "web"
    skip = {"node_modules", "dist"}
    files = [
        file
        for file in sorted(web.rglob("*"))
        if file.is_file() and not skip & set(file.relative_to(web).parts)
    ]
    mark = digest(files)
    if (static / "index.html").exists() and stamped("web", mark):
        return False
    if not (web / "node_modules").exists() or not stamped("npm", digest([web / "package-lock.json"])):
        step("web packages", ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=web)
        stamp("npm", digest([web / "package-lock.json"]))
    step("web bundle", ["npm", "run", "--silent", "build"], cwd=web)
    stamp("web", mark)
    return True


def build_extension() -> bool:
    """The Rust extension, installed editable into the environment."""
    sources = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("crates/*/Cargo.toml")]
    fixed = [ROOT / name for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml")]
    mark = digest([*sorted(sources), *fixed])
    built = list((ROOT / "python/penstock").glob("_rust*.so"))
    if built and stamped("extension", mark):
        return False
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV), "PATH": f"{VENV}/bin:{os.environ['PATH']}"}
    environment.pop("CONDA_PREFIX", None)
    command = [VENV / "bin" / "maturin", "develop", "--profile", "dev", "--locked"]
    step("Rust extension", command, environment=environment)
    stamp("extension", mark)
    return True


def build_agent() -> bool:
    """The executable that supervises jobs, into the package."""
    crate = ROOT / "crates/penstock-process"
    sources = [*crate.glob("src/**/*.rs"), crate / "Cargo.toml"]
    mark = digest([*sorted(sources), ROOT / "Cargo.toml", ROOT / "Cargo.lock"])
    if AGENT.exists() and stamped("agent", mark):
        return False
    step("process agent", agent_command("dev"))
    place_agent("debug")
    stamp("agent", mark)
    return True


def agent_command(profile: str) -> list[str]:
    """Builds the executable; it has no Python in it, so it does not go through maturin."""
    return [
        "cargo",
        "build",
        "--package",
        "penstock-process",
        "--bin",
        "penstock-agent",
        "--locked",
        "--profile",
        profile,
    ]


def place_agent(folder: str) -> None:
    """Put what was built where the package looks for it; a running one keeps its old file."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    AGENT.parent.mkdir(exist_ok=True)
    beside = AGENT.with_suffix(".new")
    shutil.copy(target / folder / AGENT.name, beside)
    beside.replace(AGENT)


def install_system_packages() -> bool:
    """Programs that tests use, where we may install them; elsewhere those tests say by name that they were skipped."""
    missing = sorted(
        {package for command, package in SYSTEM_PACKAGES.items() if shutil.which(command) is None}
    )
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    # On runlevel 1 Debian does not start the services that it installs: tests start their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    step("package lists", ["apt-get", "update", "-qq"], environment=environment)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    step(f"system packages: {', '.join(missing)}", install, environment=environment)
    return True


def step(
    what: str,
    command: Sequence[object],
    *,
    cwd: Path = ROOT,
    environment: dict[str, str] | None = None,
    remedy: str = "",
) -> None:
    """Run one command, saying what it is for and how long it took; its output is shown only when it fails."""
    say(f"{what} …")
    begun = time.monotonic()
    words = [str(word) for word in command]
    with tempfile.TemporaryFile() as log:
        done = subprocess.run(
            words, cwd=cwd, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
        log.seek(0)
        tail = log.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    if done.returncode != 0:
        print("\n".join(tail), file=sys.stderr)
        raise Unready(remedy or f"{what}: `{' '.join(words)}` exited with {done.returncode}")
    say(f"{what}: {time.monotonic() - begun:.1f} s")


def digest(files: list[Path], *, salt: str = "") -> str:
    """A hash of names and contents."""
    total = hashlib.sha256(f"{sys.version_info[:2]} {salt}".encode())
    for file in files:
        total.update(str(file.relative_to(ROOT)).encode() + b"\0")
        total.update(file.read_bytes() if file.exists() else b"absent")
    return total.hexdigest()


def stamped(name: str, mark: str) -> bool:
    """Whether a step was last done with these inputs."""
    path = STAMPS / name
    return path.exists() and path.read_text() == mark


def stamp(name: str, mark: str) -> None:
    """Remember that a step was done with these inputs."""
    STAMPS.mkdir(parents=True, exist_ok=True)
    (STAMPS / name).write_text(mark)


def say(words: str) -> None:
    """One line on the terminal."""
    print(f"[penstock] {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
