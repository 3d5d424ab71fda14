"""One digest of what a directory holds, so that hosts can tell whether they run the same files. Bounded in files, bytes and time."""

import hashlib
import os
import time
from pathlib import Path

FILES_MAX = 20_000
BYTES_MAX = 1 << 30
LIMIT_S = 4.0
DIGEST_LETTERS = 16
PIECE_BYTES = 1 << 20
#: What programs leave behind while they run.
IGNORED = frozenset(
    {".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)


def directory_digest(place: Path) -> str:
    """A digest of names and bytes; else words that say why there is none."""
    if not place.is_dir():
        return "missing"
    whole, count, size = hashlib.sha256(), 0, 0
    until = time.monotonic() + LIMIT_S
    for folder, folders, files in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        for name in sorted(files):
            path = Path(folder) / name
            count += 1
            if count > FILES_MAX or size > BYTES_MAX or time.monotonic() > until:
                return "too large to compare"
            whole.update(f"{path.relative_to(place)}\0".encode(errors="surrogateescape"))
            try:
                if path.is_symlink():
                    whole.update(os.readlink(path).encode(errors="surrogateescape"))
                elif path.is_file():
                    with path.open("rb") as file:
                        while piece := file.read(PIECE_BYTES):
                            whole.update(piece)
                            size += len(piece)
                            if size > BYTES_MAX or time.monotonic() > until:
                                return "too large to compare"
            except OSError as problem:
                whole.update(f"{problem.errno}".encode())
            whole.update(b"\0")
    return whole.hexdigest()[:DIGEST_LETTERS]
