"""Routes about the machine: what the doctor says, and recordings of events."""

import math
import time
from pathlib import Path
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock import __version__
from penstock.events import read
from penstock.observe import doctor
from penstock.view.web import query as asked
from penstock.view.web.access import error_answer
from penstock.view.web.address_scope import events_of_run
from penstock.view.web.content.recordings import (
    as_text,
    describe_event,
    describe_recording,
    find_recording,
    list_recordings,
)
from penstock.view.web.content.streams import find_streams
from penstock.view.wire.machine_answers import DoctorCheck, DoctorReport

EXAMINATION_FRESH_S = 30.0
"""How long an examination of the machine is shown again before the next request makes a new one."""


def machine_routes() -> list[BaseRoute]:
    """``api/doctor`` and ``api/events``."""
    return [
        Route("/api/doctor", _Doctor().answer),
        Route("/api/events", _recordings),
        Route("/api/events/{name}", _recording),
        Route("/api/events/{name}/{index:int}", _event),
    ]


class _Doctor:
    """Answers ``api/doctor``. An examination costs time and disk, so askers within a while share one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._examined_s = -math.inf
        self._report: DoctorReport | None = None

    async def answer(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._latest))

    def _latest(self) -> DoctorReport:
        with self._lock:
            if self._report is None or time.monotonic() - self._examined_s > EXAMINATION_FRESH_S:
                self._report = _examine()
                self._examined_s = time.monotonic()
            return self._report


def _examine() -> DoctorReport:
    checks: list[DoctorCheck] = [
        {
            "name": as_text(check.name),
            "verdict": check.verdict,
            "value": as_text(check.value),
            "hint": as_text(check.hint),
        }
        for check in doctor.examine(measure_disk=False)
    ]
    return {"version": __version__, "checks": checks, "examined_ms": time.time_ns() // 1_000_000}


def _recordings(request: Request) -> Response:
    site = asked.site_of(request)
    folders = [(name, events_of_run(site, name)) for name in find_streams(site)["runs"]]
    known = [(name, folder) for name, folder in folders if folder is not None]
    return JSONResponse(list_recordings(site.events_directory, known))


def _recording(request: Request) -> Response:
    return JSONResponse(describe_recording(read(_requested_path(request))))


def _event(request: Request) -> Response:
    index = request.path_params["index"]
    description = describe_event(read(_requested_path(request)), index)
    return (
        error_answer(404, f"the recording has no event {index}")
        if description is None
        else JSONResponse(description)
    )


def _requested_path(request: Request) -> Path:
    """A recording of the events directory, or of the run that the question names."""
    site, run = asked.site_of(request), asked.text(request, "run", "")
    folder = events_of_run(site, run) if run else site.events_directory
    path = None if folder is None else find_recording(folder, request.path_params["name"])
    if path is None:
        raise HTTPException(404, "no recording has that name")
    return path
