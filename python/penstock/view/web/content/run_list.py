"""All runs below a folder, each in a few numbers.

Reading five hundred runs takes longer than a page may wait, so an answer reads for a while and says how many are left; what was read is
kept until the run writes again. A run that writes all the time is read again after a pause that is long beside the reading.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import cast

from penstock.errors import PenstockError
from penstock.report.curves.live_screen import REST_TIMES
from penstock.report.curves.run_screen import run_screen, signature_of
from penstock.report.run_fields import run_fields
from penstock.view.address import RunsAddress
from penstock.view.model.run_summary import is_running, summary_of
from penstock.view.web.address_scope import check_parts, run_below
from penstock.view.web.content.runs import sendable
from penstock.view.web.content.streams import find_runs
from penstock.view.web.site import Site
from penstock.view.wire.run_answers import ListedRun, RunList

#: Runs that are listed, seconds that one answer reads, and summaries that are kept.
RUNS_MAX = 1_000
READING_S = 1.0
_KEPT_MAX = 4_000
_CURVES_MAX = 80
_NAME_MAX = 400


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read of a run."""

    signature: str
    #: When it may be read again.
    rested: float
    run: ListedRun


class RunLister:
    """Lists runs. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()
        # One at a time: two readers of one folder would do the same work twice.
        self._lock = Lock()

    def below(self, site: Site, address: RunsAddress, folder: Path) -> RunList:
        """The runs below a folder, by name; those that time did not suffice for are pending."""
        began = self._clock()
        places, left_out = find_runs(site, folder)
        with self._lock:
            runs = [self._at(site, place, folder, began) for place in places[:RUNS_MAX]]
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        listing: RunList = {
            "address": str(address),
            "folder": address.folder,
            "runs": runs,
            "pending": sum(run["summary"] is None and not run["problem"] for run in runs),
            "running": sum(
                run["summary"] is not None and run["summary"]["state"] == "running" for run in runs
            ),
            "left_out": left_out + len(places[RUNS_MAX:]),
            "took_ms": round(1000 * (self._clock() - began)),
        }
        return cast(RunList, sendable(listing))

    def _at(self, site: Site, path: Path, folder: Path, began: float) -> ListedRun:
        kept = self._kept.get(path)
        if kept is not None:
            self._kept.move_to_end(path)
        now = self._clock()
        is_late = now - began > READING_S
        if kept is None and is_late:
            return _blank(path, folder)
        if kept is None or (not is_late and now >= kept.rested and kept.signature != _signature(path)):
            kept = self._read(site, path, folder)
            self._kept[path] = kept
        return {**kept.run, "name": _name(path, folder)}

    def _read(self, site: Site, path: Path, folder: Path) -> _Kept:
        began = self._clock()
        # Before the files are read, so that a change in between is seen the next time.
        signature = _signature(path)
        run = _blank(path, folder)
        try:
            check_parts(site, path)
            screen = run_screen(path)
            run["summary"] = summary_of(screen, run["address"])
            run["fields"] = run_fields(path)
            run["curves"] = [curve.name for curve in screen.curves.curves][:_CURVES_MAX]
        except (PenstockError, OSError) as problem:
            run["problem"] = str(problem)[:1000] or type(problem).__name__
        ended = self._clock()
        return _Kept(signature, ended + REST_TIMES * (ended - began), run)


def _signature(path: Path) -> str:
    """Of its files, and whether it runs: a process that is gone writes nothing any more."""
    return f"{signature_of(path)} {is_running(path)}"


def _blank(path: Path, folder: Path) -> ListedRun:
    return {
        "name": _name(path, folder),
        "address": str(run_below(path)),
        "summary": None,
        "problem": "",
        "fields": {},
        "curves": [],
    }


def _name(path: Path, folder: Path) -> str:
    """As it is called below the folder."""
    return (str(path.relative_to(folder)) if path != folder else path.name)[:_NAME_MAX]
