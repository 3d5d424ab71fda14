"""What a page asks for, read from the query with limits; a question that makes no sense is refused in words."""

from starlette.requests import Request

from penstock.errors import UsageError
from penstock.view.web.site import Site

_TEXT_MAX = 12_000
_NUMBER_MAX = 2**62


def site_of(request: Request) -> Site:
    """What this server shows."""
    site: Site = request.app.state.site
    return site


def text(request: Request, name: str, default: str | None = None) -> str:
    """A word of the question."""
    value = request.query_params.get(name, default)
    if value is None:
        raise UsageError(f"missing query parameter {name!r}")
    if len(value) > _TEXT_MAX:
        raise UsageError(
            f"query parameter {name!r} must have at most {_TEXT_MAX} characters, got {len(value)}"
        )
    return value


def number(request: Request, name: str, default: int | None = None, *, maximum: int = _NUMBER_MAX) -> int:
    """A number of the question, from 0 to a limit; larger ones are held to it."""
    value = text(request, name, None if default is None else str(default))
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise UsageError(f"query parameter {name!r} must be a whole number from 0, got {value[:50]!r}")
    return min(int(value), maximum)
