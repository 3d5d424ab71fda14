"""Routes about datasets: names, versions, rows, columns, filters, lineage, differences, and media in rows."""

from collections.abc import Iterable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.errors import UsageError
from penstock.registry import Version
from penstock.view.web import query as asked
from penstock.view.web.content import datasets
from penstock.view.web.content.cells import PREVIEW_MAX, WHOLE_MAX, cell, row_cells, safe
from penstock.view.web.content.column_spread import spread
from penstock.view.web.content.filtered_rows import passing
from penstock.view.web.content.media_bytes import media_answer
from penstock.view.web.content.streams import find_streams
from penstock.view.wire.dataset_answers import (
    FilteredPage,
    RowField,
    RowLine,
    RowPage,
    VersionDifference,
    WholeRow,
)

ROWS_MAX = 200
"""Rows of one answer."""
_PATH_MAX = 8


def dataset_routes() -> list[BaseRoute]:
    """Everything below ``api/`` that is about registered data."""
    return [
        Route("/api/datasets", _datasets),
        Route("/api/streams", _streams),
        Route("/api/versions", _versions),
        Route("/api/version", _version),
        Route("/api/shards", _shards),
        Route("/api/lineage", _lineage),
        Route("/api/rows", _rows),
        Route("/api/row", _row),
        Route("/api/filter", _filter),
        Route("/api/columns", _columns),
        Route("/api/difference", _difference),
        Route("/api/media", _media),
    ]


def _asked_version(request: Request) -> Version:
    return asked.site_of(request).versions.at(asked.text(request, "at"))


def _datasets(request: Request) -> Response:
    return JSONResponse(datasets.list_datasets(asked.site_of(request), asked.text(request, "search", "")))


def _streams(request: Request) -> Response:
    return JSONResponse(find_streams(asked.site_of(request)))


def _versions(request: Request) -> Response:
    return JSONResponse(datasets.list_versions(asked.site_of(request), asked.text(request, "name")))


def _version(request: Request) -> Response:
    return JSONResponse(datasets.describe_version(asked.site_of(request), _asked_version(request)))


def _shards(request: Request) -> Response:
    return JSONResponse(datasets.list_shards(_asked_version(request), asked.number(request, "start", 0)))


def _lineage(request: Request) -> Response:
    site = asked.site_of(request)
    return JSONResponse(datasets.describe_lineage(site, site.registry.lineage(asked.text(request, "at"))))


def _rows(request: Request) -> Response:
    """Rows by number; what a row costs does not depend on the number."""
    version = _asked_version(request)
    start = min(asked.number(request, "start", 0), version.rows)
    count = asked.number(request, "count", 50, maximum=ROWS_MAX)
    numbers = range(start, min(version.rows, start + count))
    page: RowPage = {"rows": _numbered(version, numbers, version.take(numbers)), "of": version.rows}
    return JSONResponse(page)


def _row(request: Request) -> Response:
    version, number = _asked_version(request), asked.number(request, "row")
    names = [field.name for field in version.schema]
    values = version[number]
    shard, place = version.shard_of(number)
    span = version.byte_range(shard, place)
    fields: list[RowField] = [
        {"name": safe(name), "field": index, **cell(values.get(name), WHOLE_MAX)}
        for index, name in enumerate(names[: datasets.FIELDS_MAX])
    ]
    row: WholeRow = {
        "row": number,
        "of": version.rows,
        "fields": fields,
        "shard": safe(shard.name),
        "place": place,
        "bytes": None if span is None else list(span),
    }
    return JSONResponse(row)


def _filter(request: Request) -> Response:
    version = _asked_version(request)
    start = asked.number(request, "start", 0)
    count = asked.number(request, "count", 50, maximum=ROWS_MAX)
    passed = passing(version, asked.text(request, "where"), start=start, count=max(1, count))
    page: FilteredPage = {
        "rows": _numbered(version, passed.numbers, passed.rows),
        "of": version.rows,
        "looked_at": passed.looked_at,
        "next": passed.following,
        "failed": passed.failed,
        "reason": safe(passed.reason[:500]),
    }
    return JSONResponse(page)


def _columns(request: Request) -> Response:
    return JSONResponse(spread(_asked_version(request)))


def _difference(request: Request) -> Response:
    site = asked.site_of(request)
    before, after = asked.text(request, "before"), asked.text(request, "after")
    difference = site.registry.diff(before, after, rows=asked.number(request, "rows", 0) > 0)
    command = site.command(f"data diff {difference.before} {difference.after}")
    return JSONResponse(cast(VersionDifference, {**difference.to_json(), "command": command}))


def _numbered(version: Version, numbers: Iterable[int], rows: list[dict[str, Any]]) -> list[RowLine]:
    names = [field.name for field in version.schema]
    return [
        {"row": number, "cells": row_cells(row, names, PREVIEW_MAX)}
        for number, row in zip(numbers, rows, strict=True)
    ]


def _media(request: Request) -> Response:
    """Bytes of one field of one row, or of a part of it; whole or the range that a player asks for."""
    version, number = _asked_version(request), asked.number(request, "row")
    index, path = asked.number(request, "field"), asked.text(request, "path", "")
    if index >= len(version.schema):
        raise UsageError(f"{version.address} has no field {index}")

    def read() -> bytes:
        value = version[number].get(version.schema[index].name)
        for step in path.split("/")[:_PATH_MAX]:
            value = _inside(value, step) if step else value
        if not isinstance(value, bytes | memoryview):
            raise UsageError("there are no bytes at that place")
        return bytes(value)

    data = asked.site_of(request).shelf.get((version.digest, number, index, path), read)
    return media_answer(data, request.headers.get("range"))


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return None
