"""Views as plain lines and as plain values: what ``penstock view`` prints without a terminal, and what ``--json`` gives."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.view.model.fields import FieldView
from penstock.view.model.records import RecordView
from penstock.view.model.rows import RowView, VersionView
from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.glyphs import safe_line
from penstock.view.wire.batch_answers import SampleStagesAnswer

#: What a page shows unless more is asked for.
ROWS, TOKENS = 8, 96
_DOCUMENTS = 6
#: Between tokens; data that holds one is shown with it, but kinds and numbers tell.
_BETWEEN = "│"
Range = tuple[int, int] | None


def batch_lines(
    view: BatchView, rows: Range = None, tokens: Range = None, *, ids: bool = False, exact: bool = False
) -> Iterator[str]:
    """A batch of tokens, some rows of it. Characters that tokens share are shown whole, or as ``exact`` bytes."""
    facts = view.facts()
    window = view.window(rows or (0, ROWS), tokens or (0, TOKENS), joined=not exact)
    yield f"{view.address}"
    yield (
        f"step {facts['step']}, lane {facts['lane']}: {view.rows} rows of {view.length} tokens ({facts['dtype']}), "
        f"{facts['padding']} padding, {facts['loss_tokens']} in the loss, digest {view.digest}"
    )
    for source in facts["sources"]:
        known = source["tokenizer"]
        words = "no tokenizer is known" if known is None else f"{known['style']}, {known['size']:,} tokens"
        yield f"  source {source['alias']}: {source['version']}, {words}"
    texts = window.texts()
    for at, row in enumerate(range(*window.rows)):
        yield f"row {row}"
        documents = [candidate for candidate in window.documents if candidate.row == row]
        for document in documents[:_DOCUMENTS]:
            origin = view.documents.origin(document)
            where = "" if origin is None else f" ({safe_line(origin.shard)}{_bytes(origin.byte_range)})"
            version = view.sources[document.source].version
            stop = document.start + document.stop - document.at
            yield f"  [{document.at}:{document.stop}] {version} row {document.sample}{where}, tokens {document.start}–{stop}"
        if len(documents) > _DOCUMENTS:
            yield f"  and {len(documents) - _DOCUMENTS} documents more"
        mask = window.columns.get("loss_mask")
        if mask is not None:
            yield f"  loss {_spans(mask[at], window.tokens[0])}"
        if ids:
            yield f"  ids {' '.join(map(str, window.columns['tokens'][at].tolist()))}"
        yield f"  {_BETWEEN.join(texts[at])}"
    for cut in window.cuts:
        yield f"shown: {cut}"


def record_lines(view: RecordView, rows: Range = None) -> Iterator[str]:
    """A batch of records, some rows of it."""
    facts = view.facts()
    first, stop = rows or (0, ROWS)
    yield f"{view.address}"
    yield f"step {facts['step']}, lane {facts['lane']}: {view.rows} records, {facts['padding']} padding, digest {view.digest}"
    for row in range(max(0, first), min(stop, view.rows)):
        origins = view.origin(row)
        place = (
            f"{origins[0].version} row {origins[0].sample} ({safe_line(origins[0].shard)})"
            if origins
            else "padding"
        )
        yield f"row {row}: {place}"
        yield from map(_field_line, view.fields(row, text_max=200))
    if min(stop, view.rows) - max(0, first) < view.rows:
        yield f"shown: rows {first}:{min(stop, view.rows)} of {view.rows:,}"


def version_lines(view: VersionView, rows: Range = None) -> Iterator[str]:
    """A version, some rows of it."""
    facts = view.facts()
    yield f"{view.address}"
    yield f"{facts['format']}, {view.rows:,} rows in {facts['shards']:,} shards, {facts['bytes']:,} bytes, {facts['digest']}"
    for field in facts["schema"]:
        yield f"  {safe_line(field['name'])}: {field['kind']}"
    first, stop = rows or (0, ROWS)
    if view.rows:
        for row in view.page(first, max(1, min(stop, view.rows) - first)):
            yield from row_lines(row)
        yield f"shown: rows {first}:{min(stop, view.rows)} of {view.rows:,}"


def row_lines(row: RowView) -> Iterator[str]:
    """One row of a version."""
    yield f"row {row.number}  ({safe_line(row.shard)}, its row {row.place}{_bytes(row.byte_range)})"
    yield from map(_field_line, row.fields)


def batch_document(view: BatchView, rows: Range = None, tokens: Range = None) -> dict[str, Any]:
    """A batch of tokens as plain values."""
    window = view.window(rows, tokens)
    texts = window.texts()
    shown = []
    for at, row in enumerate(range(*window.rows)):
        origins = [view.documents.origin(document) for document in window.documents if document.row == row]
        shown.append(
            {
                "row": row,
                "texts": texts[at] if texts else [],
                **{name: values[at].tolist() for name, values in window.columns.items()},
                "origins": [origin.to_json() for origin in origins if origin is not None],
            }
        )
    return {**view.facts(), "shown": window.facts, "rows_shown": shown}


def stage_lines(stages: SampleStagesAnswer, *, exact: bool = False) -> Iterator[str]:
    """One sample in its four stages. Characters that tokens share are shown whole, or as ``exact`` bytes."""
    origin = stages["origin"]
    yield f"{origin['version']} row {origin['sample']} ({safe_line(origin['shard'])})"
    yield "as registered"
    for field in stages["raw"]["fields"]:
        yield f"  {safe_line(field['name'])}: {safe_line(str(field['preview']))[:400]}"
    if stages["templated"] is not None:
        yield f"as text, {stages['templated']['characters']:,} characters"
        for piece in stages["templated"]["pieces"]:
            role = f" {safe_line(piece['role'])}" if piece["role"] else ""
            mark = "learned" if piece["trained"] else "given"
            yield f"  [{piece['start']}:{piece['stop']}]{role} {mark}: {safe_line(piece['text'])}"
    tokens = stages["tokens"]
    yield f"as tokens, {len(tokens['ids']):,}{' and ' + tokens['cut'] + ' left out' if tokens['cut'] else ''}"
    yield f"  {_BETWEEN.join(tokens['texts' if exact else 'joined'])}"
    yield "in the input of this batch"
    for place in stages["input"]:
        first, stop = place["row_span"]
        start, end = place["token_span"]
        yield f"  row {place['row']} [{first}:{stop}], its tokens {start}–{end}, {place['loss']} in the loss"


def difference_lines(comparison: dict[str, Any]) -> Iterator[str]:
    """What differs, beginning with the first place."""
    one, other = comparison["sides"]
    yield f"{one}  and  {other}"
    if comparison["equal"]:
        yield "equal"
        return
    for name, (a, b) in (comparison.get("fields") or comparison.get("schema") or {}).items():
        yield f"  {name}: {safe_line(str(a))[:200]} → {safe_line(str(b))[:200]}"
    for name in ("compared_steps", "compared_rows", "first_step", "summary"):
        if comparison.get(name) is not None:
            yield f"  {name.replace('_', ' ')}: {comparison[name]}"
    if comparison.get("batch"):
        yield from difference_lines(comparison["batch"])
    first = comparison.get("first")
    if first:
        yield f"  first difference: {', '.join(f'{key} {first[key]}' for key in first if key != 'sides')}"
        for side in first["sides"]:
            shown = side.get("text", side.get("preview"))
            number = f"{side['id']} " if "id" in side else ""
            yield f"    {number}{safe_line(str(shown))[:200]}"


def _field_line(field: FieldView) -> str:
    preview = safe_line(str(field.preview))[:200]
    cut = f" … ({field.cut} left out)" if field.cut else ""
    return f"  {safe_line(field.name)}: {field.type or field.kind}, {field.size}: {preview}{cut}".rstrip(": ")


def _bytes(span: tuple[int, int] | None) -> str:
    return "" if span is None else f", bytes {span[0]}–{span[1]}"


def _spans(mask: "np.ndarray[Any, Any]", first: int) -> str:
    """Where a row of a mask is set."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask != 0, [0])).astype(np.int8)))
    pairs = [f"{first + start}:{first + stop}" for start, stop in edges.reshape(-1, 2).tolist()]
    return ", ".join(pairs) or "none"
