"""A life that is watched: where ``PENSTOCK_METRICS`` or a file of alerts asks for it, its feeds write a page, and a watcher runs beside it.

Under ``penstock run`` the job has a watcher already, which outlives ranks; it only has to be told where the run is. Elsewhere the first rank of
each host starts one, which ends with it. Nothing here raises into training.
"""

import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from penstock.data.monitor import metrics
from penstock.data.monitor.feed_page import FOLDER as PAGES
from penstock.errors import UsageError
from penstock.state.ranks.launcher import place_of

ALERTS = "alerts.toml"
_END_S = 8.0
_log = logging.getLogger("penstock.run")


class WatchedLife:
    """The page of a rank, and the watcher's process where this rank has started it."""

    def __init__(self, directory: Path, life: int, rank: int) -> None:
        self._page = metrics.publish(directory / PAGES, life, rank)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            if place_of().local == 0:
                self._begin(directory.absolute())
        except (OSError, UsageError) as problem:
            _log.warning("the run is not watched, training goes on: %s", problem)

    def _begin(self, directory: Path) -> None:
        job = os.environ.get("PENSTOCK_JOB_DIRECTORY")
        if job and os.environ.get("PENSTOCK_WATCHED"):
            _name_run(Path(job), directory)
            return
        command = [sys.executable, "-m", "penstock.report.watch", "--guard", "--run", str(directory)]
        command += ["--beside", os.getcwd(), "--until", str(os.getpid())]
        if address := os.environ.get("PENSTOCK_METRICS"):
            command += ["--serve", address]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        """The life is over, and so is watching it."""
        if self._page is not None:
            metrics.withdraw(self._page)
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _name_run(job: Path, directory: Path) -> None:
    """Tell the job's watcher where the run is."""
    folder = job / "watched"
    folder.mkdir(exist_ok=True)
    name = blake2b(os.fsencode(directory), digest_size=8).hexdigest()
    beside = folder.parent / f"watched.{os.getpid()}"
    beside.write_text(json.dumps(str(directory)))
    beside.replace(folder / name)


def watched_life(directory: Path, life: int, rank: int) -> WatchedLife | None:
    """None where nobody asks for it."""
    is_asked = bool(os.environ.get("PENSTOCK_METRICS"))
    with suppress(OSError):
        is_asked = is_asked or (directory / ALERTS).is_file() or Path(ALERTS).is_file()
    return WatchedLife(directory, life, rank) if is_asked else None
