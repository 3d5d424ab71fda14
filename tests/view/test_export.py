"""Exported pages: whole without a server, nothing of the data becomes markup, and a redacted page has no text of it."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from penstock.errors import UsageError
from penstock.view.address import parse
from penstock.view.export import batch_page, difference_page, lint_page, record_page, version_page
from penstock.view.export.markup import Markup, element
from penstock.view.lint import Finding, LintReport
from penstock.view.model import BatchView, RecordView
from penstock.view.model.difference import compare_batches
from penstock.view.opener import OpenedStream, OpenedVersion, Opener
from penstock.view.text import difference_lines
from tests.data.gallery import Gallery
from tests.view.library import HOSTILE, Library


class Tags(HTMLParser):
    """What a browser would see: tags with their attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def batch(library: Library) -> BatchView:
    opened = library.opener.open(parse(library.recipe("texts@1")))
    assert isinstance(opened, OpenedStream)
    view = opened.batch()
    assert isinstance(view, BatchView)
    return view


def assert_harmless(page: str) -> Tags:
    """No script, no handler, nothing from elsewhere, and a policy that forbids them."""
    seen = Tags(page)
    assert {tag for tag, _ in seen.tags} <= {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "h1",
            "h2",
            "p",
            "code",
            "table",
            "tr",
            "th",
            "td",
        ),
        *("ul", "li", "div", "span", "pre", "img"),
    }
    for tag, attributes in seen.tags:
        assert set(attributes) <= {
            "charset",
            "http-equiv",
            "content",
            "name",
            "lang",
            "class",
            "title",
            "src",
            "alt",
        }
        assert tag != "img" or str(attributes["src"]).startswith("data:image/")
    policy = next(a["content"] for t, a in seen.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "script-src" not in policy
    assert "<script" not in page
    return seen


def test_a_page_of_hostile_text_is_text(library: Library) -> None:
    """Goal: data never becomes HTML. Method: a version with scripts in its text, read as a browser reads it."""
    opened = library.opener.open(parse("texts@1"))
    assert isinstance(opened, OpenedVersion)
    seen = assert_harmless(version_page(opened, (0, 7)))
    assert HOSTILE[2] in seen.text
    assert "shown: rows 0:7 of 56; the rest was cut" in seen.text
    view = batch(library)
    seen = assert_harmless(batch_page(view))
    spans = [a for tag, a in seen.tags if tag == "span"]
    assert len(spans) == view.rows * view.length
    assert any("onerror" in text for text in ["".join(row) for row in view.window().texts()])
    assert f"penstock view {view.address}" in seen.text


def test_a_redacted_page_has_lengths_instead_of_text(library: Library) -> None:
    opened = library.opener.open(parse("texts@1"))
    assert isinstance(opened, OpenedVersion)
    page = version_page(opened, (0, 7), redact=True)
    words = {word for text in HOSTILE for word in re.findall(r"[a-zа-я日本語]{4,}", text)}
    assert [
        word for word in sorted(words - {"text", "line"}) if word in Tags(page).text.split("row 0", 1)[1]
    ] == []
    assert "[33 characters]" in page
    view = batch(library)
    redacted = batch_page(view, (0, 2), redact=True)
    seen = assert_harmless(redacted)
    assert "redacted: text is replaced by its length" in seen.text
    titles = [str(a["title"]) for tag, a in seen.tags if tag == "span"]
    assert not any("tokens " in title for title in titles)
    assert "[1]" in seen.text
    for word in ("plain", "alarm", "script"):
        assert word not in redacted.split("</style>")[1]


def test_pictures_of_records_are_inside_of_the_page(tmp_path: Path) -> None:
    gallery = Gallery.make(tmp_path)
    recipe = tmp_path / "records.toml"
    recipe.write_text('batch = 4\n[[sources]]\nname = "pictures@1"\n')
    opened = Opener(gallery.registry).open(parse(str(recipe)))
    assert isinstance(opened, OpenedStream)
    view = opened.batch()
    assert isinstance(view, RecordView)
    seen = assert_harmless(record_page(view))
    assert sum(tag == "img" for tag, _ in seen.tags) == 4
    assert all(tag != "img" for tag, _ in assert_harmless(record_page(view, redact=True)).tags)


def test_reports_and_differences_are_pages_too(library: Library) -> None:
    finding = Finding("loss-on-padding", "error", "3 of 9 <tokens>", "recipe.toml#step=1,row=2")
    seen = assert_harmless(lint_page("recipe.toml", LintReport([finding], 2, 8, 64, ["a note"])))
    assert "3 of 9 <tokens>" in seen.text
    assert "penstock view recipe.toml#step=1,row=2" in seen.text
    opened = library.opener.open(parse(library.recipe("texts@1")))
    assert isinstance(opened, OpenedStream)
    lines = list(difference_lines(compare_batches(opened.batch(0), opened.batch(1))))
    assert "first difference" in assert_harmless(difference_page(lines)).text
    assert lines[-1].strip() not in difference_page(lines, redact=True)


def test_a_page_opens_in_a_browser_without_a_network(
    library: Library, tmp_path: Path, chromium_path: str
) -> None:
    """Goal: it opens offline, its policy holds, and its own style passes it. Method: real Chromium, every message and request watched."""
    path = tmp_path / "page.html"
    path.write_text(batch_page(batch(library), (0, 2)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        opened = browser.new_page()
        messages: list[str] = []
        requests: list[str] = []
        opened.on("console", lambda message: messages.append(message.text))
        opened.on("pageerror", lambda problem: messages.append(str(problem)))
        opened.on("request", lambda request: requests.append(request.url))
        opened.goto(path.as_uri())
        assert opened.locator(".tokens span").count() == 2 * 32
        assert (
            opened.locator(".tokens").first.evaluate("each => getComputedStyle(each).whiteSpace")
            == "pre-wrap"
        )
        browser.close()
    assert (messages, requests) == ([], [path.as_uri()])


def test_too_much_for_a_page_is_refused_and_markup_is_made_in_one_place(library: Library) -> None:
    view = batch(library)
    arrays = {"tokens": np.zeros((500, 500), np.int64), "loss_mask": np.zeros((500, 500), np.uint8)}
    large = BatchView(arrays, address=view.address, sources=view.sources, documents=_Nothing(), facts={})
    with pytest.raises(UsageError, match="250,000 tokens are too many"):
        batch_page(large)
    assert element("p", "<b>", Markup("<i>"), title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;<i></p>'


class _Nothing:
    """Rows that come from nowhere."""

    def of_row(self, row: int) -> list[object]:
        return []

    def origin(self, document: object) -> None:
        return None
