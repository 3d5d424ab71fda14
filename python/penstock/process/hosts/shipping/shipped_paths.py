"""What of a directory is sent, as paths below it: git's files and those that it does not ignore; without git all.

Paths come one by one, so whoever has seen too many stops, and nothing grows with a directory of a million files. A repository inside of
another (a submodule, or a clone that nobody added) has its own list. What git does not manage to look into is no silence: it is refused.
"""

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from penstock.errors.process import DirectoryUnshippable

#: For all that git lists of one repository.
_GIT_S = 60.0
_READ_BYTES = 1 << 16
_COMPLAINTS_MAX = 8
_OWNED = "dubious ownership"


def listed_paths(root: Path) -> Iterator[str]:
    """Files, links and empty directories."""
    if not _has_repository(root):
        yield from _walked(root)
        return
    # A file that is in conflict is named three times.
    seen: set[str] = set()
    for name in _of_git(root, ""):
        if name not in seen:
            seen.add(name)
            yield name


def _has_repository(root: Path) -> bool:
    """Whether git is here and knows the directory; a repository that git refuses to read is an error."""
    command = ["git", "-C", str(root), "rev-parse", "--is-inside-work-tree"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_S, check=False, env=_plain_words())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except subprocess.TimeoutExpired as problem:
        raise _too_slow(root) from problem
    if done.returncode == 0:
        return done.stdout.strip() == b"true"
    said = done.stderr.decode(errors="replace").strip()
    if "not a git repository" in said:
        return False
    hint = None
    if _OWNED in said:
        hint = f"git config --global --add safe.directory {root.resolve()}, if you trust its owner"
    first = said.partition("\n")[0] or f"it ended with {done.returncode}"
    raise DirectoryUnshippable(
        directory=root, problems=[f"git does not say what belongs to it: {first}"], hint=hint
    )


def _plain_words() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


def _of_git(root: Path, inside: str) -> Iterator[str]:
    """What git lists of the repository at a place below the directory, and of those inside of it."""
    place = root / inside
    command = ["git", "-C", str(place), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    with tempfile.TemporaryFile() as complaints:
        git = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env=_plain_words()
        )
        try:
            assert git.stdout is not None
            for name in _names(git.stdout, place):
                path = os.path.join(inside, os.fsdecode(name)).rstrip("/")
                yield from _entries_at(root, path)
            code = git.wait(_GIT_S)
        finally:
            with suppress(ProcessLookupError):
                git.kill()
            git.wait()
            if git.stdout is not None:
                git.stdout.close()
        complaints.seek(0)
        said = complaints.read(1 << 16).decode(errors="replace").splitlines()
    # A directory that it may not enter is a warning to git, and would be missing on other hosts.
    problems = [f"git: {line}" for line in said if code != 0 or line.startswith("warning: could not open")]
    if code != 0 or problems:
        problems = problems[:_COMPLAINTS_MAX] or [f"git ls-files ended with {code}"]
        raise DirectoryUnshippable(directory=place, problems=problems)


def _entries_at(root: Path, path: str) -> Iterator[str]:
    """A path that git named: what is there, if anything is."""
    try:
        os.lstat(root / path)
    except (FileNotFoundError, NotADirectoryError):
        # It is gone from the directory, and git still knows it.
        return
    except OSError:
        # Whoever packs it says why it cannot be read.
        yield path
        return
    is_directory = os.path.isdir(root / path) and not os.path.islink(root / path)
    if is_directory and os.path.lexists(root / path / ".git"):
        yield from _of_git(root, path)
    else:
        yield path


def _names(stream: IO[bytes], place: Path) -> Iterator[bytes]:
    """Names as git writes them, each with a zero behind it."""
    until, rest = time.monotonic() + _GIT_S, b""
    while True:
        # The time that our reader takes is not git's.
        begun = time.monotonic()
        if begun > until or not select.select([stream], [], [], until - begun)[0]:
            raise _too_slow(place)
        piece = os.read(stream.fileno(), _READ_BYTES)
        names = (rest + piece).split(b"\0")
        rest = names.pop()
        paused = time.monotonic()
        yield from (name for name in names if name)
        until += time.monotonic() - paused
        if not piece:
            return


def _too_slow(place: Path) -> DirectoryUnshippable:
    why = f"git did not list it within {_GIT_S:.0f} s"
    return DirectoryUnshippable(
        directory=place, problems=[why], hint="ship the part that ranks need, or ignore the rest (.gitignore)"
    )


def _walked(root: Path) -> Iterator[str]:
    folders = [""]
    while folders:
        inside = folders.pop()
        try:
            entries = os.scandir(root / inside)
        except OSError as problem:
            why = f"{inside or root} cannot be read ({problem.strerror})"
            raise DirectoryUnshippable(directory=root, problems=[why]) from problem
        is_empty = True
        with entries:
            for entry in entries:
                is_empty = False
                path = os.path.join(inside, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    yield path
        if is_empty and inside:
            yield inside
