"""The web server: a read-only JSON API below ``api/`` and the built pages beside it.

Safety is one layer around everything (`_ReadOnly`): only GET and HEAD pass, and every answer, also
a refusal or an error, carries the headers that keep data from becoming code (V1). Nothing here
knows under which prefix a proxy shows it: pages and API are addressed relative to each other.
"""

import math
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import __version__
from penstock.errors import PenstockError, UsageError
from penstock.events import read
from penstock.observe import doctor
from penstock.view.web.recordings import (
    as_text,
    describe_event,
    describe_recording,
    find_recording,
    list_recordings,
)

STATIC = Path(__file__).with_name("static")
"""The bundle, written here by ``npm run build`` in ``web/``."""

EXAMINATION_FRESH_S = 30.0
"""How long an examination of the machine is shown again before the next request makes a new one."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_app(*, events_directory: Path) -> Starlette:
    """The application that shows this machine and the recordings directly inside `events_directory`."""
    routes: list[BaseRoute] = [
        Route("/api/doctor", _Doctor().answer),
        Route("/api/events", _recordings),
        Route("/api/events/{name}", _recording),
        Route("/api/events/{name}/{index:int}", _event),
        Route("/api/{rest:path}", _unknown),
        Mount("/", _pages()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(_ReadOnly), Middleware(GZipMiddleware, minimum_size=1024, compresslevel=4)],
        exception_handlers={PenstockError: _refused, HTTPException: _failed, Exception: _broken},
    )
    app.state.events_directory = events_directory
    return app


def serve(
    host: str, port: int, events_directory: Path, *, announce: Callable[[str], object] | None = None
) -> None:
    """Serve until interrupted. `announce` receives the address once it answers; port 0 means any free one."""
    with _listen(host, port) as listener:
        if announce is not None:
            shown = f"[{host}]" if ":" in host else host
            announce(f"http://{shown}:{listener.getsockname()[1]}/")
        config = uvicorn.Config(
            create_app(events_directory=events_directory),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as reason:
        hint = "another program may use that port; --port chooses a different one"
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason.strerror or reason}", hint=hint
        ) from None


class _ReadOnly:
    """The outermost layer: refuses what could write, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cache = _cache_rule(scope["path"])

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers["Cache-Control"] = cache if message["status"] in (200, 206, 304) else "no-store"
            await send(message)

        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send_safely)
        else:
            refusal = _error(405, f"{scope['method']} is refused: views only read")
            refusal.headers["Allow"] = "GET, HEAD"
            await refusal(scope, receive, send_safely)


class _Doctor:
    """Answers ``api/doctor``. An examination costs time and disk, so askers within a while share one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._examined_s = -math.inf
        self._answer: dict[str, Any] = {}

    async def answer(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._latest))

    def _latest(self) -> dict[str, Any]:
        with self._lock:
            if time.monotonic() - self._examined_s > EXAMINATION_FRESH_S:
                self._answer = _examine()
                self._examined_s = time.monotonic()
            return self._answer


def _examine() -> dict[str, Any]:
    checks = [
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
    return JSONResponse(list_recordings(request.app.state.events_directory))


def _recording(request: Request) -> Response:
    return JSONResponse(describe_recording(read(_requested_path(request))))


def _event(request: Request) -> Response:
    index = request.path_params["index"]
    found = describe_event(read(_requested_path(request)), index)
    return _error(404, f"the recording has no event {index}") if found is None else JSONResponse(found)


def _unknown(request: Request) -> Response:
    raise HTTPException(404, "there is no such address in this API")


def _requested_path(request: Request) -> Path:
    path = find_recording(request.app.state.events_directory, request.path_params["name"])
    if path is None:
        raise HTTPException(404, "there is no recording of that name")
    return path


def _pages() -> ASGIApp:
    """The built bundle, or a sentence that says how to build it (a checkout starts without one)."""
    if (STATIC / "index.html").is_file():
        return StaticFiles(directory=STATIC, html=True)
    return PlainTextResponse(
        "The web pages are not built in this checkout. Run: npm ci && npm run build   (in web/)\n", 503
    )


def _cache_rule(path: str) -> str:
    """Bundle files carry a hash in their name and never change; everything else is asked for again."""
    if "/api/" in path:
        return "no-store"
    return "public, max-age=31536000, immutable" if "/assets/" in path else "no-cache"


def _error(status: int, message: str, hint: str | None = None) -> JSONResponse:
    return JSONResponse({"error": {"message": as_text(message), "hint": hint}}, status)


def _refused(request: Request, error: Exception) -> Response:
    """One of our errors: the file is not what it says it is, and the message is meant for people."""
    return _error(422, str(error), getattr(error, "hint", None))


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail)


def _broken(request: Request, error: Exception) -> Response:
    """A defect of ours: the details go to the log of the server and not to the network."""
    answer = _error(500, f"the server failed: {type(error).__name__}", "its terminal shows the details")
    answer.headers.update(HEADERS | {"Cache-Control": "no-store"})  # Starlette answers outside `_ReadOnly`
    return answer
