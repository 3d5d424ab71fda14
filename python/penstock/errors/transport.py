"""Errors on their way from one process to another, as JSON: class, message and fields.

Only classes of ``penstock.errors`` come out at the other end, whatever the document says; anything else is a ``ServiceError``.
"""

from typing import Any

import msgspec

from penstock.errors.root import PenstockError
from penstock.errors.service import ServiceError


def to_json(problem: BaseException) -> bytes:
    """An error as it travels; one that is not ours becomes a ``ServiceError`` that says what it was."""
    if not isinstance(problem, PenstockError):
        words = f"the server failed: {type(problem).__name__}: {problem}"
        return msgspec.json.encode({"class": "ServiceError", "message": words, "fields": {}})
    document = {
        "class": type(problem).__name__,
        "message": str(problem),
        # Notes are made again from the hint.
        "fields": {key: value for key, value in problem.__dict__.items() if key != "__notes__"},
    }
    # A field that has no form in JSON is told as text.
    return msgspec.json.encode(document, enc_hook=str)


def from_json(document: bytes, server: str) -> PenstockError:
    """The error that a server raised."""
    from penstock import errors

    try:
        read = msgspec.json.decode(document, type=dict[str, Any])
        name, message, fields = str(read["class"]), str(read["message"]), dict(read["fields"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        shown = bytes(document[:120]).decode(errors="replace")
        return ServiceError(f"{server} answers what is no error of ours: {shown}")
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        return ServiceError(f"{server}: {message}")
    problem = kind.__new__(kind, message)
    problem.args = (message,)
    for key, value in fields.items():
        setattr(problem, str(key), _value(value))
    problem.add_note(f"raised by the data service at {server}")
    return problem


def _value(value: Any) -> Any:
    """JSON has no tuples; fields that are lists are those."""
    return tuple(value) if isinstance(value, list) else value
