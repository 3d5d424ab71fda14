"""What a peer has read in a file, left beside it by a program of the peer's and found again by a test."""

import pickle
from pathlib import Path
from typing import Any


def leave(path: Path, rows: list[dict[str, Any]]) -> None:
    """Called in the program of the peer."""
    path.with_name(f"{path.name}.read").write_bytes(pickle.dumps(rows))


def read_by_peer(path: Path) -> list[dict[str, Any]]:
    """Called in the test."""
    rows: list[dict[str, Any]] = pickle.loads(path.with_name(f"{path.name}.read").read_bytes())
    return rows
