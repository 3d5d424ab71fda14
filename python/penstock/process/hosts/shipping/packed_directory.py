"""A working directory as one file, to be sent to all hosts of a job: what is in it is found out, and refused, before anything is started.

Which files these are says ``shipped_paths``. The file begins with the length of a manifest, then the manifest as JSON, then all contents
(``crates/penstock-process/src/host/carrier/pack.rs`` reads it). Each content has its digest, so a host asks only for what it does not have from
an earlier job.
"""

import hashlib
import itertools
import json
import os
import shutil
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from penstock.errors.process import DirectoryUnshippable
from penstock.process.hosts.shipping.shipped_paths import listed_paths
from penstock.process.job.catalogue import FINAL, Job

#: All contents together, and all entries.
BYTES_MAX = 256 << 20
ENTRIES_MAX = 100_000
#: Copies of jobs that are over stay as long as they are not more than this, for what they have in common with the next.
KEPT_BYTES_MAX = 1 << 30
#: In the directory of a host: what was sent, the copy, and a link to where ranks run in it.
SHIPMENT, COPY, PLACE = "shipment", "work", "place"
#: As hosts read it (``MANIFEST_BYTES_MAX`` of ``carrier/pack.rs``).
MANIFEST_BYTES_MAX = 32 << 20
_PIECE_BYTES = 1 << 20
_NAMED_MAX = 8


class Packed(NamedTuple):
    """What was packed."""

    path: Path
    #: Of the manifest, and so of everything.
    digest: str
    file_count: int
    byte_count: int

    def words(self) -> str:
        """For people."""
        files = "1 file" if self.file_count == 1 else f"{self.file_count:,} files"
        return f"{files} with {self.byte_count / 1e6:.1f} MB are sent to all hosts"


def pack(directory: Path, to: Path, *, place: str = "") -> Packed:
    """Pack a directory into a file that is not there yet. Raises ``DirectoryUnshippable`` with all that stands against it.

    ``place`` is where ranks run, below the directory.
    """
    entries = _entries(directory)
    within = (place, f"{place}/")
    if place and not any(
        entry["path"] == within[0] or entry["path"].startswith(within[1]) for entry in entries
    ):
        why = f"ranks would run in {place}, and nothing of it is sent"
        raise DirectoryUnshippable(directory=directory, problems=[why])
    contents = [entry for entry in entries if entry.get("size")]
    size = sum(entry["size"] for entry in contents)
    if size > BYTES_MAX:
        largest = sorted(contents, key=lambda entry: -int(entry["size"]))[:_NAMED_MAX]
        named = [f"{entry['path']} ({entry['size'] >> 20} MiB)" for entry in largest]
        why = f"its files have {size >> 20} MiB, {BYTES_MAX >> 20} at most"
        raise DirectoryUnshippable(
            directory=directory,
            problems=[why, f"the largest are {', '.join(named)}"],
            hint="ignore them (.gitignore), or keep data and checkpoints where all hosts see them",
        )
    problems: list[str] = []
    for entry in contents:
        try:
            entry["digest"] = _digest(directory / entry["path"], entry["size"])
        except OSError as problem:
            problems.append(f"{entry['path']} cannot be read ({problem.strerror or problem})")
    _refuse(directory, problems)
    manifest = json.dumps({"place": place, "entries": entries}, separators=(",", ":")).encode()
    if len(manifest) > MANIFEST_BYTES_MAX:
        why = f"the names of its {len(entries):,} files have {len(manifest) >> 20} MiB, {MANIFEST_BYTES_MAX >> 20} at most"
        raise DirectoryUnshippable(directory=directory, problems=[why])
    number = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(number, "wb") as target:
            target.write(struct.pack(">Q", len(manifest)) + manifest)
            for entry in contents:
                _add(target, directory, entry)
    except BaseException:
        to.unlink(missing_ok=True)
        raise
    files = sum("size" in entry for entry in entries)
    return Packed(to, hashlib.sha256(manifest).hexdigest(), files, size)


def sweep(jobs: Path, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> int:
    """Remove copies of jobs that are over, oldest first, as long as they are more than may be kept; how many bytes that were."""
    copies = []
    for directory in jobs.iterdir() if jobs.is_dir() else ():
        shipment = directory / SHIPMENT
        if shipment.is_file() and Job(directory).phase() in (*FINAL, "lost", "unreadable"):
            size = shipment.stat().st_size + _size(directory / COPY)
            copies.append((shipment.stat().st_mtime, size, directory))
    kept = sum(size for _, size, _ in copies)
    removed = 0
    for _, size, directory in sorted(copies):
        if kept - removed <= kept_bytes_max:
            break
        shutil.rmtree(directory / COPY, ignore_errors=True)
        (directory / SHIPMENT).unlink(missing_ok=True)
        removed += size
    return removed


def _entries(directory: Path) -> list[dict[str, Any]]:
    if not os.path.isdir(directory):
        raise DirectoryUnshippable(
            directory=directory, problems=["it is not a directory, or it may not be read"]
        )
    root = directory.resolve()
    # Counted before anything is looked at: whoever names a directory of a million files hears of it at once.
    paths = list(itertools.islice(listed_paths(root), ENTRIES_MAX + 1))
    if len(paths) > ENTRIES_MAX:
        hint = "ship the part that ranks need, or ignore the rest (.gitignore)"
        why = f"it has more than {ENTRIES_MAX:,} files"
        raise DirectoryUnshippable(directory=directory, problems=[why], hint=hint)
    if not paths and os.listdir(root):
        why, hint = (
            "nothing of it is sent: git ignores all of it",
            "ship a directory that git does not ignore",
        )
        raise DirectoryUnshippable(directory=directory, problems=[why], hint=hint)
    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    for path in paths:
        try:
            entry = _entry(root, path)
        except UnicodeEncodeError:
            problems.append(f"{path!r} has a name that is not text")
        except OSError as problem:
            problems.append(f"{path} cannot be read ({problem.strerror or problem})")
        except ValueError as problem:
            problems.append(f"{path} {problem}")
        else:
            entries += [entry] if entry else []
    _refuse(directory, problems)
    return sorted(entries, key=lambda entry: str(entry["path"]))


def _refuse(directory: Path, problems: list[str]) -> None:
    if problems:
        more = [f"and {len(problems) - _NAMED_MAX} more"] if len(problems) > _NAMED_MAX else []
        raise DirectoryUnshippable(directory=directory, problems=problems[:_NAMED_MAX] + more)


def _entry(root: Path, path: str) -> dict[str, Any] | None:
    """One line of the manifest; an error of value for what cannot be sent."""
    path.encode()
    status = os.lstat(root / path)
    if stat.S_ISLNK(status.st_mode):
        link = os.readlink(root / path)
        inside = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if os.path.isabs(link) or inside == ".." or inside.startswith("../"):
            raise ValueError(f"is a link that leads out, to {link}")
        return {"path": path, "link": link}
    if stat.S_ISDIR(status.st_mode):
        return {"path": path, "is_directory": True, "mode": stat.S_IMODE(status.st_mode)}
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is neither a file nor a directory nor a link")
    if not os.access(root / path, os.R_OK):
        raise PermissionError(13, "Permission denied")
    return {"path": path, "mode": stat.S_IMODE(status.st_mode), "size": status.st_size}


def _digest(path: Path, size: int) -> str:
    context, count = hashlib.sha256(), 0
    for piece in _pieces(path):
        context.update(piece)
        count += len(piece)
    if count != size:
        raise OSError(f"it had {size} bytes and has {count} now")
    return context.hexdigest()


def _add(target: BinaryIO, directory: Path, entry: dict[str, Any]) -> None:
    context = hashlib.sha256()
    for piece in _pieces(directory / entry["path"]):
        context.update(piece)
        target.write(piece)
    if context.hexdigest() != entry["digest"]:
        why = f"{entry['path']} changed while it was packed"
        raise DirectoryUnshippable(directory=directory, problems=[why], hint="start again")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _size(folder: Path) -> int:
    total = 0
    for inside, _, files in os.walk(folder):
        for name in files:
            total += os.lstat(os.path.join(inside, name)).st_size
    return total
