"""Makes a bare checkout ready: environment, packages, web bundle, extension, and what tests need from the system.

Runs on the machine's own Python with nothing installed. Chains of steps that do not need each other run side by side. A
step whose inputs have the same content as last time is skipped, so that a second `make` starts at once. `prepare.py run`
readies the demo, `prepare.py test` readies the tests as well, and `prepare.py engines` those that need a real Kubernetes.
"""

from __future__ import annotations  # so that an old Python gets as far as the line that says so

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import checkout
import engines
import rust
from progress import Progress
from steps import ROOT, Steps, Unready, complain, interrupt_on_end_signals

VENV = ROOT / ".venv"
STAMPS = VENV / "stamps"

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
    "ip": "iproute2",
    "mpirun": "openmpi-bin",
    "nft": "nftables",
    "nginx": "nginx",
    "nodeset": "clustershell",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "tcsh": "tcsh",
}


def main() -> int:
    """Ready the tree for `run`, `test` or `engines`."""
    asked = sys.argv[1] if len(sys.argv) > 1 else "run"
    purpose = "run" if asked == "run" else "test"
    if sys.version_info < (3, 11):  # noqa: UP036 - the machine decides which Python runs this
        print("error: Python 3.11 or newer is needed, this is {}.{}".format(*sys.version_info[:2]))
        return 2
    interrupt_on_end_signals()
    begun = time.monotonic()
    try:
        check_tools()
        with Progress() as progress:
            steps = Steps(progress)
            chains = [
                lambda: build_rust(steps),
                lambda: install_python(steps, purpose),
                lambda: build_web(steps),
            ]
            if purpose == "test":
                missing = engines.missing_packages() if asked == "engines" else []
                chains.append(lambda: install_system_packages(steps, missing))
            if asked == "engines":
                chains.append(lambda: engines.build(steps))
            if steps.side_by_side(chains):
                progress.say(f"ready after {time.monotonic() - begun:.0f} s")
    except Unready as problem:
        complain(problem)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def check_tools() -> None:
    """Every tool is there and new enough, or one line says which is not."""
    for tool, (oldest, remedy) in TOOLS.items():
        if shutil.which(tool) is None:
            raise Unready(f"{tool} is missing: {remedy}")
        if oldest == (0,):
            continue
        answer = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
        match = re.search(r"(\d+)\.(\d+)", answer.stdout)
        version = (int(match[1]), int(match[2])) if match else (0, 0)
        if version < oldest:
            wanted = ".".join(map(str, oldest))
            raise Unready(f"{tool} {version[0]}.{version[1]} is too old, {wanted} is needed: {remedy}")


def install_python(steps: Steps, purpose: str) -> bool:
    """The environment, the packages in it, and the checkout itself."""
    return any([make_venv(steps), install_packages(steps, purpose), install_checkout(steps)])


def make_venv(steps: Steps) -> bool:
    """The environment itself."""
    if (VENV / "bin" / "pip").exists():
        return False
    remedy = "the venv module does not work here (Debian: apt-get install python3-venv)"
    steps.run("environment in .venv", [sys.executable, "-m", "venv", VENV], remedy=remedy)
    return True


def install_packages(steps: Steps, purpose: str) -> bool:
    """What pyproject.toml asks for, at the versions of constraints.txt."""
    if any(stamped(f"packages-{other}", packages_mark(other)) for other in (purpose, "test")):
        return False
    command = [
        VENV / "bin" / "pip",
        "install",
        "--progress-bar=off",
        "--disable-pip-version-check",
        # Compiling every module of the frameworks takes longer than downloading them; Python does it for those it imports.
        "--no-compile",
        "-c",
        "constraints.txt",
    ]
    steps.run(f"Python packages ({purpose})", [*command, *requirements(purpose)], reader=package_under_way)
    if purpose == "test":
        alone = [*command, "--no-deps", *WITHOUT_DEPENDENCIES]
        steps.run("Python packages without their dependencies", alone, reader=package_under_way)
    stamp(f"packages-{purpose}", packages_mark(purpose))
    return True


def package_under_way(line: str) -> str | None:
    """What pip is busy with, from its lines."""
    if line.startswith("Installing collected packages"):
        return f"installing {line.count(',') + 1}"
    match = re.match(r"(?:Collecting|Downloading) ([A-Za-z0-9_.]+)", line.strip())
    return match[1] if match else None


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


def build_web(steps: Steps) -> bool:
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
        steps.run("web packages", ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=web)
        stamp("npm", digest([web / "package-lock.json"]))
    steps.run("web bundle", ["npm", "run", "--silent", "build"], cwd=web)
    stamp("web", mark)
    return True


def build_rust(steps: Steps) -> bool:
    """The extension and the executable that supervises jobs, into the package."""
    mark = digest(rust.sources())
    if rust.EXTENSION.exists() and rust.AGENT.exists() and stamped("rust", mark):
        return False
    rust.build(steps)
    stamp("rust", mark)
    return True


def install_checkout(steps: Steps) -> bool:
    """The checkout, found by Python where it stands."""
    mark = digest([ROOT / name for name in ("pyproject.toml", "Cargo.toml")], salt=str(ROOT))
    if (VENV / "bin/penstock").exists() and stamped("checkout", mark):
        return False
    checkout.install(steps, VENV)
    stamp("checkout", mark)
    return True


def install_system_packages(steps: Steps, more: list[str]) -> bool:
    """Programs that tests use, where we may install them; elsewhere those tests say by name that they were skipped."""
    missing = sorted(
        {package for command, package in SYSTEM_PACKAGES.items() if shutil.which(command) is None} | set(more)
    )
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    # On runlevel 1 Debian does not start the services that it installs: tests start their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    steps.run("package lists", ["apt-get", "update", "-qq"], environment=environment)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    steps.run(f"system packages: {', '.join(missing)}", install, environment=environment)
    return True


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


if __name__ == "__main__":
    sys.exit(main())
