"""One view as one file of HTML that opens anywhere, offline and without scripts: for bug reports, and for clusters without a browser.

With ``redact`` no text of the data is in the file: tokens and fields are replaced by their lengths, numbers of tokens by nothing.
Addresses, names of versions and shards, special tokens and counts stay, since a report without them says nothing.
"""

from typing import Any

from penstock.errors import UsageError
from penstock.view.export.markup import Markup, element, joined, page, picture
from penstock.view.lint import LintReport
from penstock.view.model.fields import FieldView
from penstock.view.model.media import media_of
from penstock.view.model.records import RecordView
from penstock.view.model.rows import RowView, VersionView
from penstock.view.model.tokens.batch import BatchView, TokenWindow
from penstock.view.model.tokens.vocabulary import KIND_NAMES, TokenKind
from penstock.view.wire.batch_answers import SampleStagesAnswer

#: More tokens than this make a file that browsers are slow with.
TOKENS_MAX = 200_000
#: A picture that is larger is named, not shown.
PICTURE_BYTES_MAX = 1 << 20
ROWS_MAX = 200
_COLOURS = 5
Range = tuple[int, int] | None


def batch_page(
    view: BatchView, rows: Range = None, tokens: Range = None, *, redact: bool = False, exact: bool = False
) -> str:
    """A window of a batch of tokens. Characters that tokens share are shown whole, or as ``exact`` bytes."""
    # What is redacted is counted in bytes of the tokens themselves.
    window = view.window(rows, tokens, joined=not (redact or exact))
    count = window.columns["tokens"].size
    if count > TOKENS_MAX:
        raise UsageError(
            f"{count:,} tokens are too many for one page, at most {TOKENS_MAX:,}",
            hint="choose --rows and --tokens",
        )
    facts = view.facts()
    shown = {
        name: facts[name] for name in ("step", "lane", "rows", "length", "padding", "loss_tokens", "digest")
    }
    rows_shown = [_row(view, window, at, redact) for at in range(window.rows[1] - window.rows[0])]
    return page(
        str(view.address),
        *_head(str(view.address), facts["command"], window.cuts, redact),
        _facts(shown),
        *rows_shown,
    )


def record_page(view: RecordView, rows: Range = None, *, redact: bool = False) -> str:
    """Rows of a batch of records."""
    facts = view.facts()
    chosen = _clipped(rows, view.rows)
    cuts = [] if chosen == (0, view.rows) else [f"rows {chosen[0]}:{chosen[1]} of {view.rows:,}"]
    parts: list[str] = []
    for row in range(*chosen):
        origins = view.origin(row)
        place = f"{origins[0].version} row {origins[0].sample} ({origins[0].shard})" if origins else "padding"
        values = {field.name: view.value(row, field.name) for field in view.fields(row)}
        parts += (element("h2", f"row {row}: {place}"), _fields(view.fields(row), values, redact))
    shown = {name: facts[name] for name in ("step", "lane", "rows", "padding", "digest")}
    return page(
        str(view.address), *_head(str(view.address), facts["command"], cuts, redact), _facts(shown), *parts
    )


def version_page(view: VersionView, rows: Range = None, *, redact: bool = False) -> str:
    """Rows of a version."""
    facts = view.facts()
    chosen = _clipped(rows, view.rows)
    cuts = [] if chosen == (0, view.rows) else [f"rows {chosen[0]}:{chosen[1]} of {view.rows:,}"]
    parts: list[str] = []
    for row in view.page(chosen[0], max(1, chosen[1] - chosen[0])) if view.rows else []:
        parts += _version_row(view, row, redact)
    shown = {name: facts[name] for name in ("format", "rows", "bytes", "digest", "created")}
    return page(
        str(view.address), *_head(str(view.address), facts["command"], cuts, redact), _facts(shown), *parts
    )


def lint_page(address: str, report: LintReport) -> str:
    """What lint found."""
    lines = [
        element(
            "tr",
            element("td", element("span", finding.severity, class_=finding.severity)),
            element("td", finding.kind),
            element(
                "td", finding.sentence, *([element("p", finding.hint, class_="note")] if finding.hint else [])
            ),
            element("td", f"{finding.cost:.1%} of {finding.unit}"),
            element("td", element("code", f"penstock view {finding.address}")),
        )
        for finding in report.findings
    ]
    heads = element("tr", *(element("th", head) for head in ("", "kind", "finding", "costs", "look")))
    counted = f"{len(report.findings)} findings in {report.batches:,} batches, {report.rows:,} rows, {report.tokens:,} tokens"
    notes = [element("p", note, class_="note") for note in report.notes]
    return page(
        f"lint {address}",
        element("h1", f"lint {address}"),
        element("p", counted),
        *notes,
        element("table", heads, *lines),
    )


def stage_page(address: str, stages: SampleStagesAnswer, *, redact: bool = False, exact: bool = False) -> str:
    """One sample in its four stages."""
    origin, tokens = stages["origin"], stages["tokens"]
    raw = [
        element(
            "tr",
            element("th", field["name"]),
            element("td", f"[{field['size']}]" if redact else str(field["preview"])),
        )
        for field in stages["raw"]["fields"]
    ]
    pieces = [
        element(
            "span",
            f"[{piece['stop'] - piece['start']}]" if redact else piece["text"],
            class_=f"m{int(piece['trained'])}",
            title=f"{piece['role']} {piece['start']}:{piece['stop']}",
        )
        for piece in (stages["templated"] or {"pieces": []})["pieces"]
    ]
    shown = [
        element("span", f"[{len(text.encode())}]" if redact and kind != "special" else text, title=kind)
        for text, kind in zip(tokens["texts" if redact or exact else "joined"], tokens["kinds"], strict=True)
    ]
    places = [
        element(
            "li",
            f"row {stretch['row']} {stretch['row_span']}, its tokens {stretch['token_span']}, {stretch['loss']} in the loss",
        )
        for stretch in stages["input"]
    ]
    cut = [element("p", f"cut: {tokens['cut']}", class_="cut")] if tokens["cut"] else []
    return page(
        address,
        element("h1", f"{address}: {origin['version']} row {origin['sample']} ({origin['shard']})"),
        *([_redacted()] if redact else []),
        element("h2", "as registered"),
        element("table", *raw),
        element("h2", "as text"),
        element("div", *pieces, class_="tokens"),
        element("h2", "as tokens"),
        *cut,
        element("div", *shown, class_="tokens"),
        element("h2", "in the input of this batch"),
        element("ul", *places),
    )


def difference_page(lines: list[str], *, redact: bool = False) -> str:
    """What differs between two sides, as the lines that the terminal prints."""
    # The values of both sides are the lines that are set in furthest.
    kept = [line for line in lines if not (redact and line.startswith("    "))]
    note = [_redacted()] if redact else []
    return page(
        f"difference of {lines[0]}", element("h1", lines[0]), *note, element("pre", "\n".join(kept[1:]))
    )


def _head(address: str, command: str, cuts: list[str], redact: bool) -> list[Markup]:
    parts = [element("h1", address), element("p", element("code", command))]
    parts += [element("p", f"shown: {cut}; the rest was cut", class_="cut") for cut in cuts]
    return [*parts, _redacted()] if redact else parts


def _redacted() -> Markup:
    return element("p", "redacted: text is replaced by its length", class_="cut")


def _facts(facts: dict[str, Any]) -> Markup:
    rows = [element("tr", element("th", name), element("td", str(value))) for name, value in facts.items()]
    return element("table", *rows)


def _row(view: BatchView, window: TokenWindow, at: int, redact: bool) -> Markup:
    row = window.rows[0] + at
    columns = {name: values[at].tolist() for name, values in window.columns.items()}
    documents = [
        element(
            "li",
            f"[{document.at}:{document.stop}] {view.sources[document.source].version} row {document.sample}, from its token {document.start}",
        )
        for document in window.documents
        if document.row == row
    ]
    texts = window.texts()[at] if window.columns["tokens"].size else []
    spans = [_token(columns, place, text, redact) for place, text in enumerate(texts)]
    return joined(
        element("h2", f"row {row}"), element("ul", *documents), element("div", *spans, class_="tokens")
    )


def _token(columns: dict[str, list[Any]], at: int, text: str, redact: bool) -> Markup:
    kind = columns["kinds"][at]
    masked = columns.get("loss_mask", [1] * (at + 1))[at]
    segment = columns.get("segments", [0] * (at + 1))[at]
    hidden = redact and kind not in (TokenKind.SPECIAL, TokenKind.PADDING)
    words = f"[{len(text.encode())}]" if hidden else text
    extra = {
        name: values[at]
        for name, values in columns.items()
        if name not in ("kinds", "sources") and not (redact and name == "tokens")
    }
    title = ", ".join((KIND_NAMES[kind], *(f"{name} {value}" for name, value in extra.items())))
    return element("span", words, class_=f"k{kind} m{int(bool(masked))} s{segment % _COLOURS}", title=title)


def _version_row(view: VersionView, row: RowView, redact: bool) -> list[Markup]:
    values = view.version[row.number]
    return [element("h2", f"row {row.number} ({row.shard})"), _fields(row.fields, values, redact)]


def _fields(fields: list[FieldView], values: dict[str, Any], redact: bool) -> Markup:
    rows = []
    for field in fields:
        value = values.get(field.name)
        shown: str = str(field.preview)
        media = media_of(value) if isinstance(value, bytes) else None
        if redact and field.kind != "nothing":
            shown = f"[{field.size}]"
        elif media is not None and media.kind == "image" and len(value or b"") <= PICTURE_BYTES_MAX:
            shown = picture(value or b"", media.type)
        cut = element("div", f"cut: {field.cut}", class_="cut") if field.cut else ""
        rows.append(
            element(
                "tr",
                element("th", field.name),
                element("td", f"{field.kind}, {field.size}"),
                element("td", element("pre", shown), cut),
            )
        )
    return element("table", *rows)


def _clipped(rows: Range, count: int) -> tuple[int, int]:
    first, stop = rows or (0, ROWS_MAX)
    first = max(0, min(first, count))
    return first, max(first, min(stop, count, first + ROWS_MAX))
