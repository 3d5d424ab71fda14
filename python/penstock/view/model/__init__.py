"""What is shown, without any screen: batches, records, versions and rows as plain values and packed columns.

The terminal, the browser, ``--json`` and exported pages all show what is made here, so they cannot disagree.
"""

from penstock.data.tap.columns import pack, unpack
from penstock.view.model.fields import FieldView
from penstock.view.model.records import RecordView
from penstock.view.model.rows import RowView, VersionView
from penstock.view.model.tokens.batch import BatchView, SourceView, TokenWindow
from penstock.view.model.tokens.vocabulary import TokenKind, Vocabulary

__all__ = [
    "BatchView",
    "FieldView",
    "RecordView",
    "RowView",
    "SourceView",
    "TokenKind",
    "TokenWindow",
    "VersionView",
    "Vocabulary",
    "pack",
    "unpack",
]
