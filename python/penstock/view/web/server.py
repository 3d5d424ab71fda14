"""The web server: a read-only API below ``api/`` and the built pages beside it.

Nothing here knows under which prefix a proxy shows it: pages and API are addressed relative to each other. Safety is one
layer around everything; see ``access``.
"""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.errors import PenstockError, UsageError
from penstock.view.web.access import DATA_POLICY, HEADERS, Access, Guard, access_for, error_answer
from penstock.view.web.batch_routes import batch_routes
from penstock.view.web.connections import ConnectionLimits, RequestLimit, connection_class
from penstock.view.web.content.recordings import as_text
from penstock.view.web.dataset_routes import dataset_routes
from penstock.view.web.host_routes import host_routes
from penstock.view.web.machine_routes import machine_routes
from penstock.view.web.run_routes import run_routes
from penstock.view.web.site import Site

STATIC = Path(__file__).with_name("static")
"""The bundle, written here by ``npm run build`` in ``web/``."""
_ACCEPTED_AT_ONCE, _WAITING_MAX = 16, 1024


def create_app(site: Site, access: Access, limits: ConnectionLimits | None = None) -> Starlette:
    """The application that shows a site to those who have access."""
    requests = (limits or ConnectionLimits()).requests
    routes: list[BaseRoute] = [
        *machine_routes(),
        *dataset_routes(),
        *batch_routes(),
        *run_routes(),
        *host_routes(),
        Route("/api/{rest:path}", _unknown),
        Mount("/", _pages()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, access=access),
            Middleware(RequestLimit, limit=requests),
            Middleware(_Squeezed),
        ],
        exception_handlers={PenstockError: _refused, HTTPException: _failed, Exception: _broken},
    )
    app.state.site = site
    return app


def listen(bind: str, port: int) -> socket.socket:
    """A socket that listens; port 0 means any free one."""
    hint = "another program may use that port; --port chooses a different one, --port 0 any that is free"
    if not 0 <= port <= 65_535:
        raise UsageError(f"cannot listen on {bind} port {port}: the port must be from 0 to 65535", hint=hint)
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        return socket.create_server((bind, port), family=family)
    except OSError as reason:
        said = f"cannot listen on {bind} port {port}: {reason.strerror or reason}"
        raise UsageError(said, hint=hint) from None


def address_of(listener: socket.socket, access: Access, page: str = "") -> str:
    """What the reader opens: name, port, the proxy's path, the token, and the page."""
    host, port = listener.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}{access.prefix}/?token={access.token}{page}"


def serve(
    site: Site,
    listener: AbstractContextManager[socket.socket],
    make_access: Callable[[int], Access] | None = None,
    *,
    announce: Callable[[str], object] | None = None,
    page: str = "",
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve until interrupted. `announce` receives the address, with its token, once it answers."""
    with listener as listening:
        port = listening.getsockname()[1]
        access = make_access(port) if make_access is not None else access_for("127.0.0.1", port)
        allowed = limits or ConnectionLimits()
        config = uvicorn.Config(
            create_app(site, access, allowed),
            http=connection_class(allowed),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_keep_alive=30,
            # So many are accepted at once, before those that came earlier are read: few, or a storm would push them out unread.
            backlog=_ACCEPTED_AT_ONCE,
        )
        server = _Server(config)
        if announce is not None:
            server.started_with = lambda: announce(address_of(listening, access, page))
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Accepts few connections at once, and lets many wait in the kernel."""

    #: Called when it answers, and signals end it in order.
    started_with: Callable[[], object] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as ever, with a longer queue."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_WAITING_MAX)
        self.started_with()


class _Squeezed:
    """Compresses text; never media and packed columns, which are asked for by byte or read at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._squeezed = GZipMiddleware(app, minimum_size=1024, compresslevel=4)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bare = scope["type"] != "http" or scope["path"] in ("/api/media", "/api/batch", "/api/field")
        await (self._plain if bare else self._squeezed)(scope, receive, send)


def _unknown(request: Request) -> Response:
    raise HTTPException(404, "there is no such address in this API")


def _pages() -> ASGIApp:
    """The built bundle, or a sentence that says how to build it (a checkout starts without one)."""
    if (STATIC / "index.html").is_file():
        return StaticFiles(directory=STATIC, html=True)
    return PlainTextResponse(
        "The web pages are not built in this checkout. Run: npm ci && npm run build   (in web/)\n", 503
    )


def _refused(request: Request, error: Exception) -> Response:
    """One of our errors: the message is meant for people."""
    return error_answer(422, as_text(str(error)), getattr(error, "hint", None))


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_answer(error.status_code, as_text(error.detail))


def _broken(request: Request, error: Exception) -> Response:
    """A defect of ours: the details go to the log of the server and not to the network."""
    answer = error_answer(500, f"the server failed: {type(error).__name__}", "its terminal shows the details")
    # Starlette answers outside the layers, so that the headers have to be put here as well.
    answer.headers.update(HEADERS | {"Content-Security-Policy": DATA_POLICY, "Cache-Control": "no-store"})
    return answer
