"""Routes about the hosts of jobs: which jobs have many, all hosts of one, what has moved since, and one host with its ranks."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.view.web import query as asked
from penstock.view.web.content.hosts import HostBoards


def host_routes() -> list[BaseRoute]:
    """Everything below ``api/hosts``."""
    return [
        Route("/api/hosts", _listing),
        Route("/api/hosts/board", _board),
        Route("/api/hosts/moves", _moves),
        Route("/api/hosts/host", _host),
    ]


def _boards(request: Request) -> HostBoards:
    return asked.site_of(request).hosts


def _moment_s(request: Request) -> float:
    """Of a job that is played; others have one moment only."""
    return asked.number(request, "moment", 0, maximum=10**15) / 1000


def _listing(request: Request) -> Response:
    return JSONResponse(_boards(request).listing())


def _board(request: Request) -> Response:
    return JSONResponse(_boards(request).board(asked.text(request, "job"), _moment_s(request)))


def _moves(request: Request) -> Response:
    job, stamp, mark = (asked.text(request, name) for name in ("job", "stamp", "mark"))
    return JSONResponse(_boards(request).moves(job, stamp, mark, _moment_s(request)))


def _host(request: Request) -> Response:
    place = asked.number(request, "place")
    return JSONResponse(_boards(request).detail(asked.text(request, "job"), place, _moment_s(request)))
