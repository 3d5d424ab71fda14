"""Installs the checkout into its environment: Python finds the package where it stands, with its commands and its metadata.

An editable wheel is a path file and the metadata. maturin writes the metadata; `maturin develop` would also compile.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zipfile
from pathlib import Path

from steps import ROOT, Steps


def install(steps: Steps, environment: Path) -> None:
    """Make an editable wheel and let pip install it."""
    with tempfile.TemporaryDirectory(prefix="penstock-editable-") as name:
        folder = Path(name)
        describe = [environment / "bin/maturin", "pep517", "write-dist-info"]
        python = environment / "bin/python"
        steps.run(
            "metadata of the package",
            [*describe, "--metadata-directory", folder, "--interpreter", python],
        )
        wheel = editable_wheel(folder)
        pip = [environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        steps.run(
            "the package, where it stands", [*pip, "--no-deps", "--no-index", "--force-reinstall", wheel]
        )


def editable_wheel(folder: Path) -> Path:
    """The wheel of the metadata in a folder, beside it."""
    (about,) = folder.glob("*.dist-info")
    files = {"penstock.pth": f"{ROOT / 'python'}\n".encode()}
    for file in sorted(about.rglob("*")):
        if file.is_file():
            files[str(file.relative_to(folder))] = file.read_bytes()
    record = f"{about.name}/RECORD"
    rows = [record_row(name, content) for name, content in files.items()]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    wheel = folder / f"{about.name.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def record_row(name: str, content: bytes) -> str:
    """What RECORD says about a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(content)}"
