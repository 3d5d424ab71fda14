"""Texts of which each file is one document: ``{"path": …, "text": …}``, with attributes as files of media have them.

Such texts (markdown, reStructuredText, LaTeX, HTML; any others when asked for) are kept as ``files.py`` keeps media: many
files are one shard, and each is read and checked by itself.
"""

from collections.abc import Sequence

from penstock.formats.contract import FieldKind, OpenShard, RawFile, Row
from penstock.formats.lines.text import is_text
from penstock.formats.lines.transcript import encoding_of
from penstock.formats.media.files import FileRows, Files


class Documents(Files):
    """The format ``documents``: one row per file of text."""

    name = "documents"
    content = FieldKind("text", "string")
    suffixes: Sequence[str] = (
        ".md",
        ".markdown",
        ".mdx",
        ".rst",
        ".org",
        ".adoc",
        ".tex",
        ".html",
        ".htm",
    )

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It is text, and is called as texts are that mean nothing line by line."""
        return raw.name.lower().endswith(tuple(self.suffixes)) and is_text(head)

    def fault(self, member: RawFile) -> str | None:
        """An empty text is a row, one that is not text is none."""
        data = member.read(0, member.size_bytes)
        try:
            document_text(data)
        except UnicodeError as problem:
            place = getattr(problem, "start", 0)
            return f"it is not {encoding_of(data).upper()} at byte {place}"
        return None

    def open(self, shard: OpenShard) -> "DocumentRows":
        """Rows are whole files."""
        return DocumentRows(shard)


class DocumentRows(FileRows):
    """Rows of one run of texts."""

    def content(self, data: memoryview) -> Row:
        """The text, with its line ends as they are."""
        return {"text": document_text(bytes(data))}


def document_text(data: bytes) -> str:
    """A file as text, without its byte order mark."""
    encoding = encoding_of(data)
    return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
