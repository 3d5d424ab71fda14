"""Builds the engines that `make engines` tests against: Kubernetes, from its own sources, as one executable.

It takes about ten minutes of processor time once. The result is kept in the user's cache under the digest of what it is
built from; Go keeps what it has compiled, so a build that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from steps import ROOT, Steps, Unready

SOURCES = ROOT / "workshop/engines/kubernetes"
FILES = ("main.go", "go.mod", "go.sum")
# Command that an engine needs -> Debian package that brings it.
SYSTEM_PACKAGES = {
    "busybox": "busybox-static",
    "containerd": "containerd",
    "etcd": "etcd-server",
    "openssl": "openssl",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
GO_OLDEST = (1, 24)
#: All packages of the build, for the progress line; more or fewer changes nothing.
PACKAGES = 1900


def cache() -> Path:
    """Where engines are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "penstock" / "engines"


def kubernetes() -> Path:
    """The executable; its name changes with what it is built from."""
    total = hashlib.sha256()
    for name in FILES:
        total.update((SOURCES / name).read_bytes())
    return cache() / f"kubernetes-{total.hexdigest()[:16]}"


def build(steps: Steps) -> bool:
    """Build what is not there."""
    executable = kubernetes()
    if executable.exists():
        return False
    check_go()
    executable.parent.mkdir(parents=True, exist_ok=True)
    beside = executable.with_name(f".{executable.name}.{os.getpid()}")
    version = re.search(r"k8s.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    assert version is not None
    # Without its version kubelet and kubectl take the control plane for another one.
    named = [
        f"-X k8s.io/{part}/version.gitVersion={version[1]}" for part in ("component-base", "client-go/pkg")
    ]
    counted = Packages()
    command = ["go", "build", "-v", "-trimpath", "-ldflags", " ".join(["-s -w", *named]), "-o", beside, "."]
    steps.run(
        f"Kubernetes {version[1]} (about ten minutes, once)",
        command,
        cwd=SOURCES,
        environment={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
        reader=counted.read,
    )
    beside.rename(executable)
    return True


class Packages:
    """How far Go is, from the names that it writes."""

    def __init__(self) -> None:
        self.done = 0

    def read(self, line: str) -> str | None:
        """A package, or something else."""
        if not re.fullmatch(r"[A-Za-z0-9_.~!/-]+", line.strip()):
            return None
        self.done += 1
        return f"{self.done} of about {max(PACKAGES, self.done)} packages"


def check_go() -> None:
    """Go is there and new enough."""
    remedy = "install Go {}.{} or newer, which builds Kubernetes for these tests".format(*GO_OLDEST)
    if shutil.which("go") is None:
        raise Unready(f"go is missing: {remedy}")
    answer = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False)
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    if match is None or (int(match[1]), int(match[2])) < GO_OLDEST:
        raise Unready(f"{answer.stdout.strip() or 'go'} is too old: {remedy}")


def missing_packages() -> list[str]:
    """Debian packages whose programs are not here."""
    return sorted({package for program, package in SYSTEM_PACKAGES.items() if not _is_here(program)})


def _is_here(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program) is not None
