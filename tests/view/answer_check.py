"""Holds what the server really answers to what is declared of it; every client of the tests does so with every answer."""

import json
import re
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from penstock.view.web.batch_routes import PACKED
from penstock.view.wire.schema import schema

#: Answers that are bytes under the type of what they hold.
BYTES = {"media", "field"}


def check_answer(answer: httpx.Response) -> None:
    """Fail when an answer of the API has another form than its route declares: a field too few, too many, or of another type."""
    _, api, path = answer.request.url.path.partition("/api/")
    content = answer.headers.get("content-type", "")
    if not api or answer.request.method != "GET" or content not in ("application/json", PACKED):
        return
    answer.read()
    body = _header(answer.content) if content == PACKED else answer.json()
    check_body(_route(path) if answer.is_success else "error", body)


def check_body(route: str, body: Any) -> None:
    """The same for a body that was read already."""
    wrong = best_match(_validator(route).iter_errors(body))
    assert wrong is None, f"api/{route} is declared otherwise: {wrong.json_path} {wrong.message}"


@cache
def _validator(route: str) -> Draft7Validator:
    document = schema()
    part = document["definitions"]["Answers"]["properties"][route]
    return Draft7Validator({**part, "definitions": document["definitions"]})


def _header(data: bytes) -> Any:
    return json.loads(data[8 : 8 + int.from_bytes(data[4:8], "little")])


def _route(path: str) -> str:
    """The route of a path, as the table of answers names it."""
    return re.sub(r"^events/[^/]+(/\d+)?$", lambda m: "events/{name}" + ("/{index}" if m[1] else ""), path)
