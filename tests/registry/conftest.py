"""Small raw files and registries for the tests of this folder."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.registry import Registry

WriteRows = Callable[..., Path]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    """Writes a JSON lines file of numbered rows below ``raw/``."""

    def write(name: str, first: int = 0, count: int = 100, **more: object) -> Path:
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": row, "text": f"row {row} " * (row % 7 + 1), **more} for row in range(first, first + count)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture(params=["directory", "memory", "s3"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    """A registry on each kind of store."""
    if request.param == "directory":
        return Registry(tmp_path / "registry")
    if request.param == "memory":
        return Registry(f"memory://{uuid.uuid4().hex}/registry")
    return Registry(f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}")


@pytest.fixture
def local(tmp_path: Path) -> Registry:
    """A registry in a directory."""
    return Registry(tmp_path / "registry")
