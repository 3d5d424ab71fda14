"""The wheel holds everything and works where there is no compiler, no checkout, and an older system."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

#: The glibc of RHEL 8 and its kin.
OLDEST = (2, 28)


@pytest.fixture(scope="module")
def told(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The wheel, built with the profile that the tests compiled already, and what building and trying it said."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, str(root / "workshop/wheel.py"), "--profile", "dev", "--out", str(out)]
    before = agent(root).read_bytes()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert agent(root).read_bytes() == before, "the checkout keeps its own agent"
    (wheel,) = out.glob("*.whl")
    return wheel, done.stdout


def agent(root: Path) -> Path:
    return root / "python/penstock/process/bin/penstock-agent"


def test_the_wheel_installs_into_a_clean_environment_and_passes_its_smoke_test(
    told: tuple[Path, str],
) -> None:
    """`make wheel` builds the optimised one the same way."""
    assert "installs and runs in a clean environment" in told[1]


@pytest.mark.parametrize("name", ["penstock/_rust.abi3.so", "penstock/process/bin/penstock-agent"])
def test_nothing_asks_for_a_newer_glibc_than_that_of_rhel_8(
    told: tuple[Path, str], tmp_path: Path, name: str
) -> None:
    wheel, _ = told
    assert wheel.name.split("-")[-1].startswith("manylinux_2_28_")
    needed = glibc_versions(Path(zipfile.ZipFile(wheel).extract(name, tmp_path)))
    assert (2, 17) <= max(needed) <= OLDEST, sorted(needed)


def glibc_versions(file: Path) -> set[tuple[int, ...]]:
    """The versions of glibc whose symbols a file needs."""
    command = ["readelf", "--version-info", "--wide", str(file)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([\d.]+)", listed)}
