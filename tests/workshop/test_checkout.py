"""A checkout is installed where it stands: Python finds its modules, its version and its commands, and nothing is compiled for that."""

import base64
import csv
import hashlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

MAKE = """
import subprocess, sys
from pathlib import Path
from checkout import editable_wheel
folder = Path(sys.argv[1])
maturin = Path(sys.executable).parent / "maturin"
words = ["pep517", "write-dist-info", "--metadata-directory", folder, "--interpreter", sys.executable]
subprocess.run([maturin, *words], cwd="..", check=True, stdout=subprocess.DEVNULL)
print(editable_wheel(folder))
"""
LOOK = """
import site, sys
from pathlib import Path
site.addsitedir(sys.argv[1])
import importlib.metadata as metadata
(about,) = metadata.Distribution.discover(name="penstock", path=[sys.argv[1]])
import penstock
print(about.version, [point.value for point in about.entry_points], Path(penstock.__file__).parent)
"""


def test_the_editable_wheel_is_one_that_pip_installs(root: Path, tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-c", MAKE, str(tmp_path)],
        cwd=root / "workshop",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    wheel = built.stdout.splitlines()[-1]
    with zipfile.ZipFile(wheel) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
        rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
        assert sorted(rows) == sorted(archive.namelist())
        for name, (digest, size) in rows.items():
            content = archive.read(name)
            named = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert name == record or (digest, size) == (f"sha256={named}", str(len(content)))

    place = tmp_path / "place"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(place),
    ]
    subprocess.run([*pip, wheel], check=True, timeout=120)
    assert (place / "bin/penstock").exists()
    isolated = [sys.executable, "-I", "-S", "-c", LOOK, str(place)]
    seen = subprocess.run(isolated, capture_output=True, text=True, timeout=120)
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    expected = [version, "['penstock.cli.main:main']", str(root / "python/penstock")]
    assert seen.stdout.split() == expected, seen.stderr
