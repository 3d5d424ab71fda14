"""Places for checkpoints: a directory, memory, and a real S3 server."""

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store import Store, open_store


@pytest.fixture(params=["directory", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A place on each kind of store."""
    if request.param == "directory":
        return open_store(tmp_path / "checkpoints")
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}/checkpoints")
    return open_store(f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}")


@pytest.fixture
def memory() -> Store:
    """A place in memory, where many small steps are quick."""
    return open_store(f"memory://{uuid.uuid4().hex}/checkpoints")


@pytest.fixture
def local(tmp_path: Path) -> Store:
    """A place in a directory, which other processes can reach."""
    return open_store(tmp_path / "checkpoints")


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder in memory where there is one, for tests that sync many small files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)
