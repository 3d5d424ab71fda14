"""Routes about batches: windows of tokens as packed columns, one token, records, lanes, and differences.

What is shown is made by ``penstock.view.model``; here only is decided what may be opened, and how much travels at once.
"""

from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.errors import UsageError
from penstock.view.bounds import parse_bounds
from penstock.view.model import BatchView, RecordView, pack
from penstock.view.model.difference import compare_streams
from penstock.view.model.tokens.budget import budget_by_role
from penstock.view.model.tokens.vocabulary import KIND_NAMES
from penstock.view.web import query as asked
from penstock.view.web.address_scope import OpenedStream, ShownAddress, open_stream
from penstock.view.web.content.cells import WHOLE_MAX, safe
from penstock.view.web.content.comparison import compare_views
from penstock.view.web.content.lens import look_at_lanes
from penstock.view.web.content.live import look_at_run, shown_by
from penstock.view.web.content.media_bytes import media_answer
from penstock.view.wire.batch_answers import RecipeDifference, RecordPage, TokenBatchHead, TokenDetail

TOKENS_MAX = 1 << 20
"""Tokens of one answer: about twenty megabytes of columns, and what a page lays out in a moment."""
_RECORDS_MAX = 64
_FIELD_MAX = 400
PACKED = "application/vnd.penstock.columns"


def batch_routes() -> list[BaseRoute]:
    """Everything below ``api/`` that is about batches."""
    return [
        Route("/api/batch", _batch),
        Route("/api/token", _token),
        Route("/api/records", _records),
        Route("/api/field", _field),
        Route("/api/lanes", _lanes),
        Route("/api/differences", _differences),
        Route("/api/recipes", _recipes),
        Route("/api/stages", _stages),
        Route("/api/roles", _roles),
        Route("/api/taps", _taps),
    ]


def _asked(request: Request, name: str = "address") -> tuple[ShownAddress, OpenedStream]:
    return open_stream(asked.site_of(request), asked.text(request, name))


def _viewed(request: Request, stream: OpenedStream) -> tuple[BatchView | RecordView, list[str]]:
    """The batch of the address, or what the run's loop shows under the name that is asked for; and what is missing."""
    name = asked.text(request, "tap", "")
    return shown_by(stream, name) if name else (stream.batch(), [])


def _batch(request: Request) -> Response:
    """Facts of a batch and, of one of tokens, a window: all of it unless that is too much."""
    shown, stream = _asked(request)
    view, missing = _viewed(request, stream)
    if isinstance(view, RecordView):
        return Response(pack({**view.facts(), **shown.facts(view)}, {}), media_type=PACKED)
    rows_max = max(1, TOKENS_MAX // max(1, view.length))
    first, stop = parse_bounds(asked.text(request, "rows", ":")).within(view.rows) if view.rows else (0, 0)
    exact = asked.text(request, "bytes", "") == "1"
    window = view.window((first, min(stop, first + rows_max)), joined=not exact)
    head: TokenBatchHead = {
        **view.facts(),
        **shown.facts(view),
        "window": {**window.facts, "cuts": [*window.facts["cuts"], *missing]},
        "kinds": list(KIND_NAMES),
    }
    return Response(window.packed(head), media_type=PACKED)


def _token(request: Request) -> Response:
    shown, stream = _asked(request)
    view, _ = _viewed(request, stream)
    if not isinstance(view, BatchView):
        raise UsageError("a batch of records has no tokens")
    place = shown.address.place
    if place.row is None or place.token is None:
        raise UsageError("the address names no token", hint="it ends in row=5,token=120")
    return JSONResponse(_json_safe({**view.token(place.row, place.token), "address": str(shown.address)}))


def _json_safe(detail: TokenDetail) -> TokenDetail:
    """Numbers that JSON lacks (not a number, infinities; columns have them) travel as text."""
    odd = {name: str(value) for name, value in detail.items() if value != value or value in (1e999, -1e999)}
    return cast(TokenDetail, {**detail, **odd})


def _records(request: Request) -> Response:
    _, stream = _asked(request)
    view = stream.batch()
    if not isinstance(view, RecordView):
        raise UsageError("a batch of tokens has no records")
    first = asked.number(request, "first", 0)
    count = asked.number(request, "count", 16, maximum=_RECORDS_MAX)
    page: RecordPage = {"rows": view.window(first, first + count, text_max=4_000), "of": view.rows}
    return JSONResponse(page)


def _field(request: Request) -> Response:
    """One whole value of a record: bytes as what they are, the rest as text."""
    _, stream = _asked(request)
    view = stream.batch()
    if not isinstance(view, RecordView):
        raise UsageError("a batch of tokens has no records")
    value = view.value(asked.number(request, "row"), asked.text(request, "name"))
    if isinstance(value, bytes | bytearray | memoryview):
        return media_answer(bytes(value), request.headers.get("range"))
    text = str(value)[:WHOLE_MAX]
    return Response(text.encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8")


def _lanes(request: Request) -> Response:
    _, stream = _asked(request)
    lanes = asked.number(request, "lanes", 4)
    equal = asked.number(request, "equal", 1)
    return JSONResponse(look_at_lanes(stream, lanes=max(1, lanes), equal=max(1, equal)))


def _differences(request: Request) -> Response:
    one, other = (_asked(request, side)[1].batch() for side in ("a", "b"))
    return JSONResponse(compare_views(one, other))


def _recipes(request: Request) -> Response:
    """What differs between two recipes, and the first step whose batch does; steps are compared from the addresses' on."""
    one, other = (_asked(request, side)[1] for side in ("a", "b"))
    comparison = compare_streams(one, other)
    answer: RecipeDifference = {
        "fields": {
            name: [safe(str(side))[:_FIELD_MAX] for side in sides]
            for name, sides in comparison["fields"].items()
        },
        "equal": comparison["equal"],
        "compared_steps": comparison["compared_steps"],
        "first_step": comparison["first_step"],
    }
    return JSONResponse(answer)


def _stages(request: Request) -> Response:
    """The sample of the address's token in its four stages."""
    shown, stream = _asked(request)
    view, place = stream.batch(), shown.address.place
    if not isinstance(view, BatchView) or place.row is None or place.token is None:
        raise UsageError("the address names no token", hint="it ends in row=5,token=120")
    samples = asked.site_of(request).samples_of(stream)
    return JSONResponse(samples.stages(view, place.row, place.token))


def _roles(request: Request) -> Response:
    """What the loss is spent on, by role; empty where no source is of conversations."""
    _, stream = _asked(request)
    view = stream.batch()
    if not isinstance(view, BatchView):
        raise UsageError("a batch of records has no tokens")
    return JSONResponse(budget_by_role(view, asked.site_of(request).samples_of(stream)))


def _taps(request: Request) -> Response:
    """What the ranks of a run have in their hands now, rebuilt and compared."""
    return JSONResponse(look_at_run(_asked(request)[1]))
