"""Routes about runs: what their report says, curves, rank by step, whether anything has changed since, and all runs of a folder."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.errors import UsageError
from penstock.view.web import query as asked
from penstock.view.web.address_scope import open_run, open_runs
from penstock.view.web.content.run_list import RunLister
from penstock.view.web.content.runs import (
    Screens,
    describe_curves,
    describe_heat_map,
    describe_run,
    describe_state,
)

_COLUMN_MAX = 500


def run_routes() -> list[BaseRoute]:
    """Everything below ``api/run``."""
    pages = _RunPages()
    return [
        Route("/api/run", pages.overview),
        Route("/api/run/curves", pages.curves),
        Route("/api/run/heat", pages.heat),
        Route("/api/run/state", _state),
        Route("/api/runs", pages.listing),
    ]


class _RunPages:
    """Answers that come from what a run means, which is computed once for all of them."""

    def __init__(self) -> None:
        self._screens = Screens()
        self._list = RunLister()

    def overview(self, request: Request) -> Response:
        address, path = open_run(asked.site_of(request), asked.text(request, "address"))
        return JSONResponse(describe_run(*self._screens.at(path), address))

    def curves(self, request: Request) -> Response:
        _, path = open_run(asked.site_of(request), asked.text(request, "address"))
        first, end = asked.number(request, "first", 0), asked.number(request, "end", 0)
        if end and end <= first:
            raise UsageError(f"steps must go from a smaller to a larger number, got {first} to {end}")
        screen, _ = self._screens.at(path)
        name = asked.text(request, "curve", "")
        return JSONResponse(describe_curves(screen, first or None, end or None, name or None))

    def heat(self, request: Request) -> Response:
        _, path = open_run(asked.site_of(request), asked.text(request, "address"))
        column = asked.text(request, "column")
        screen, _ = self._screens.at(path)
        if column not in screen.steps.names:
            raise UsageError(
                f"there is no column {column[:_COLUMN_MAX]!r}; there are {', '.join(screen.steps.names[:40])}"
            )
        return JSONResponse(describe_heat_map(screen, column))

    def listing(self, request: Request) -> Response:
        site = asked.site_of(request)
        address, folder = open_runs(site, asked.text(request, "address"))
        return JSONResponse(self._list.below(site, address, folder))


def _state(request: Request) -> Response:
    """Cheap: looks at files and opens none but taps."""
    _, path = open_run(asked.site_of(request), asked.text(request, "address"))
    return JSONResponse(describe_state(path))
