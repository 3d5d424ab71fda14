"""A batch of tokens as people look at it: windows of rows and tokens, each costing what it shows.

``BatchView`` knows where it stands (its address) and what would show the same again (its command). ``window`` gives rows a to b and
tokens c to d as columns: numbers, display text, kinds, segments, positions, loss mask, sources, and every other column that the
batch has of its shape. What a window leaves out, it says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from penstock.data.feed.batch import Batch, Origin
from penstock.data.feed.lane import Lane
from penstock.data.plan.plan import Plan
from penstock.data.tap.columns import pack
from penstock.errors import RowOutOfRange, TokenOutOfRange, UsageError
from penstock.view.address import Address
from penstock.view.model.commands import commands_of
from penstock.view.model.origins import origin_facts
from penstock.view.model.tokens.characters import join, partial_runs, reach
from penstock.view.model.tokens.documents import (
    BatchDocuments,
    Document,
    Documents,
    document_columns,
    source_column,
)
from penstock.view.model.tokens.vocabulary import KIND_NAMES, TokenKind, Vocabulary
from penstock.view.wire.batch_answers import (
    SourceFacts,
    TokenBatchFacts,
    TokenBatchIdentity,
    TokenDetail,
    TokenFacts,
    WindowFacts,
)

#: Columns that every batch of tokens has; others of its shape are shown as numbers.
COLUMNS = ("tokens", "segments", "positions", "loss_mask")
#: The most tokens that one window has.
WINDOW_MAX = 1 << 22
#: Numbers below this are counted, larger ones are sorted.
_COUNTED_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source of a batch."""

    alias: str
    version: str
    vocabulary: Vocabulary | None = None

    def facts(self) -> SourceFacts:
        """As plain values."""
        known = self.vocabulary
        return {
            "alias": self.alias,
            "version": self.version,
            "tokenizer": None
            if known is None
            else {"path": known.path, "style": known.style, "size": known.size},
        }


@dataclass(frozen=True)
class TokenWindow:
    """Some rows and tokens of a batch."""

    rows: tuple[int, int]
    tokens: tuple[int, int]
    #: By name, each of the window's shape.
    columns: dict[str, npt.NDArray[Any]]
    #: Display bytes of all tokens, row after row, and where each ends.
    text: bytes
    text_ends: npt.NDArray[np.uint32]
    documents: list[Document]
    #: What was left out, in words; empty when nothing was.
    cuts: list[str]
    facts: WindowFacts

    def texts(self) -> list[list[str]]:
        """The display of every token, row by row."""
        ends = self.text_ends.tolist()
        texts = [self.text[start:stop].decode() for start, stop in zip([0, *ends], ends, strict=False)]
        width = self.tokens[1] - self.tokens[0]
        return [texts[at : at + width] for at in range(0, len(texts), width)] if width else []

    def packed(self, facts: Mapping[str, Any] | None = None) -> bytes:
        """The window as packed columns, with its own facts in front or with others."""
        columns = {
            **self.columns,
            "text": np.frombuffer(self.text, dtype=np.uint8),
            "text_ends": self.text_ends,
            **document_columns(self.documents),
        }
        return pack({**(self.facts if facts is None else facts), "kinds": KIND_NAMES}, columns)


class BatchView:
    """A batch of tokens, its address, and windows into it."""

    kind: Literal["tokens"] = "tokens"

    def __init__(
        self,
        arrays: Mapping[str, Any],
        *,
        address: Address,
        sources: Sequence[SourceView],
        documents: Documents,
        facts: TokenBatchIdentity,
    ) -> None:
        self.arrays = arrays
        self.address = address
        self.sources = list(sources)
        self.documents = documents
        self._facts = facts
        self._tokens = np.asarray(arrays["tokens"])
        if self._tokens.ndim != 2:
            raise UsageError(f"tokens have the shape {list(self._tokens.shape)}, not rows and tokens")
        self.rows, self.length = (int(size) for size in self._tokens.shape)

    @property
    def digest(self) -> str:
        """The digest of the batch."""
        return self._facts["digest"]

    @property
    def step(self) -> int:
        """The step of the recipe."""
        return self._facts["step"]

    @cached_property
    def numeric(self) -> list[str]:
        """Further columns of the batch's shape: logprobs, advantages, rewards."""
        others = [name for name in self.arrays if name not in (*COLUMNS, "cu_seqlens")]
        return [name for name in others if _is_column(self.arrays[name], self._tokens.shape)]

    @cached_property
    def _real(self) -> npt.NDArray[np.bool_]:
        """Whether a token is no padding."""
        if "segments" not in self.arrays:
            return np.ones(self._tokens.shape, dtype=np.bool_)
        return np.asarray(self.arrays["segments"]).astype(np.bool_)

    def facts(self) -> TokenBatchFacts:
        """What is known of the batch without looking at a token."""
        return {
            **self._facts,
            "kind": self.kind,
            "address": str(self.address),
            **commands_of(self.address),
            "rows": self.rows,
            "length": self.length,
            "dtype": str(self._tokens.dtype),
            "padding": int((~self._real).sum()),
            "loss_tokens": int(np.asarray(self.arrays["loss_mask"]).sum())
            if "loss_mask" in self.arrays
            else None,
            "columns": [*(name for name in COLUMNS if name in self.arrays), *self.numeric],
            "sources": [source.facts() for source in self.sources],
        }

    def window(
        self,
        rows: tuple[int, int] | None = None,
        tokens: tuple[int, int] | None = None,
        *,
        joined: bool = False,
    ) -> TokenWindow:
        """Rows a to b and tokens c to d; what lies outside the batch is left out, and said.

        With ``joined`` a character that several tokens share is shown whole; otherwise each token shows its own bytes.
        """
        chosen_rows, row_cuts = _clipped(rows, self.rows, "rows")
        chosen, token_cuts = _clipped(tokens, self.length, "tokens")
        count = (chosen_rows[1] - chosen_rows[0]) * (chosen[1] - chosen[0])
        if count > WINDOW_MAX:
            raise UsageError(
                f"a window of {count:,} tokens is too much", hint=f"ask for {WINDOW_MAX:,} at most"
            )
        where = (slice(*chosen_rows), slice(*chosen))
        documents = [
            document
            for row in range(*chosen_rows)
            for document in self.documents.of_row(row)
            if document.at < chosen[1] and document.stop > chosen[0]
        ]
        names = [*(name for name in COLUMNS if name in self.arrays), *self.numeric]
        columns = {name: np.asarray(self.arrays[name])[where] for name in names}
        columns["sources"] = source_column(documents, chosen_rows, chosen)
        text, ends, kinds = self._displayed(columns["tokens"], columns["sources"], self._real[where])
        columns["kinds"] = kinds
        if joined and (kinds == TokenKind.PARTIAL).any():
            text, ends = self._joined(text, ends, columns, (chosen_rows, chosen))
        cuts = [*row_cuts, *token_cuts]
        facts: WindowFacts = {
            "address": str(self.address),
            "rows": list(chosen_rows),
            "tokens": list(chosen),
            "of_rows": self.rows,
            "of_tokens": self.length,
            "cuts": cuts,
            "sources": [source.facts() for source in self.sources],
        }
        return TokenWindow(chosen_rows, chosen, columns, text, ends, documents, cuts, facts)

    def picture(self) -> bytes:
        """How rows are packed, as packed columns: documents of all rows with their places, and the boundaries that attention gets."""
        documents = [document for row in range(self.rows) for document in self.documents.of_row(row)]
        columns = document_columns(documents)
        if "cu_seqlens" in self.arrays:
            columns["cu_seqlens"] = np.asarray(self.arrays["cu_seqlens"])
        return pack(self.facts(), columns)

    def origin(self, row: int, token: int | None = None) -> list[Origin]:
        """Where a row came from, or the one document that a token belongs to."""
        if not 0 <= row < self.rows:
            raise RowOutOfRange(row=row, rows=self.rows)
        touched = [
            document
            for document in self.documents.of_row(row)
            if token is None or document.at <= token < document.stop
        ]
        return [origin for document in touched if (origin := self.documents.origin(document)) is not None]

    def token(self, row: int, token: int) -> TokenDetail:
        """Everything about one token: its exact bytes, its place, its document."""
        if not 0 <= row < self.rows:
            raise RowOutOfRange(row=row, rows=self.rows)
        if not 0 <= token < self.length:
            raise TokenOutOfRange(token=token, tokens=self.length)
        window = self.window((row, row + 1), (token, token + 1))
        number = int(window.columns["tokens"][0, 0])
        source = int(window.columns["sources"][0, 0])
        vocabulary = self._vocabulary(source)
        data = None if vocabulary is None else vocabulary.bytes_of(number)
        columns = {name: values[0, 0].item() for name, values in window.columns.items()}
        facts: TokenFacts = {
            "row": row,
            "token": token,
            "id": number,
            "text": window.text.decode(),
            "bytes": None if data is None else data.hex(),
            "kind": KIND_NAMES[columns["kinds"]],
            "origin": [origin_facts(origin) for origin in self.origin(row, token)],
        }
        return cast(TokenDetail, {**columns, **facts})

    def _vocabulary(self, source: int) -> Vocabulary | None:
        """The vocabulary of a source; padding is shown with the first one that there is."""
        if source < len(self.sources):
            return self.sources[source].vocabulary
        return next(
            (candidate.vocabulary for candidate in self.sources if candidate.vocabulary is not None), None
        )

    def _displayed(
        self, tokens: npt.NDArray[Any], sources: npt.NDArray[np.uint16], real: npt.NDArray[np.bool_]
    ) -> tuple[bytes, npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
        """Display bytes and kinds of tokens. Each different token of a source is looked at once."""
        which, pairs = _distinct(tokens.reshape(-1), sources.reshape(-1), len(self.sources))
        pieces, kinds = [], np.zeros(len(pairs), dtype=np.uint8)
        for at, (number, source) in enumerate(pairs):
            vocabulary = self._vocabulary(source)
            if vocabulary is None:
                piece, kind = str(number).encode(), TokenKind.NUMBER
            else:
                piece, kind = vocabulary.display(number)
            pieces.append(piece)
            kinds[at] = kind
        lengths = np.array([len(piece) for piece in pieces], dtype=np.uint32)
        ends = np.cumsum(lengths[which], dtype=np.uint32) if len(which) else np.zeros(0, dtype=np.uint32)
        text = b"".join([pieces[at] for at in which.tolist()])
        shown_kinds = kinds[which].reshape(tokens.shape)
        shown_kinds[~real] = TokenKind.PADDING
        return text, ends, shown_kinds

    def _joined(
        self,
        text: bytes,
        ends: npt.NDArray[np.uint32],
        columns: Mapping[str, npt.NDArray[Any]],
        window: tuple[tuple[int, int], tuple[int, int]],
    ) -> tuple[bytes, npt.NDArray[np.uint32]]:
        """The display of a window with shared characters whole, those that its edges cut among them."""
        (first_row, _), (first, stop) = window
        parts = [text[start:end] for start, end in pairwise([0, *ends.tolist()])]
        segments = (
            np.asarray(self.arrays["segments"]) if "segments" in self.arrays else np.ones_like(self._tokens)
        )
        for at, kinds in enumerate(columns["kinds"]):
            row, place = first_row + at, at * (stop - first)
            for start, end in partial_runs(kinds, segments[row, first:stop]):
                vocabulary = self._vocabulary(int(columns["sources"][at, start]))
                if vocabulary is not None:
                    around = reach(segments[row], first + start, first + end)
                    ids = self._tokens[row, around.start : around.stop].tolist()
                    shown = join([vocabulary.bytes_of(token) or b"" for token in ids])
                    begin = first + start - around.start
                    parts[place + start : place + end] = [
                        piece.encode() for piece in shown[begin : begin + end - start]
                    ]
        return b"".join(parts), np.cumsum([len(part) for part in parts], dtype=np.uint32)


def view_of(
    batch: Batch, plan: Plan, *, address: Address, lane: Lane, vocabularies: Sequence[Vocabulary | None]
) -> BatchView:
    """The view of a batch of tokens that a plan has made."""
    sources = [
        SourceView(prepared.source.alias, prepared.version.address, vocabulary)
        for prepared, vocabulary in zip(plan.prepared, vocabularies, strict=True)
    ]
    facts: TokenBatchIdentity = {"step": batch.step, "lane": str(lane), "digest": batch.digest}
    return BatchView(
        batch, address=address, sources=sources, documents=BatchDocuments(batch, plan), facts=facts
    )


def _distinct(
    tokens: npt.NDArray[Any], sources: npt.NDArray[np.uint16], count: int
) -> tuple[npt.NDArray[np.intp], list[tuple[int, int]]]:
    """The different tokens of each source, and for every token which of them it is."""
    numbers = tokens.astype(np.int64)
    # Padding comes from no source, and is the one after the last.
    source = np.minimum(sources, count).astype(np.int64)
    least, width = int(numbers.min(initial=0)), int(numbers.max(initial=0)) + 1
    if least < 0 or width > _COUNTED_MAX:
        distinct, which = np.unique(np.stack([numbers, source]), axis=1, return_inverse=True)
        return which.reshape(-1), list(zip(*distinct.tolist(), strict=True)) if distinct.size else []
    # Counting is much faster than sorting, and most vocabularies are small.
    keys = source * width + numbers
    counted = np.bincount(keys)
    present = np.flatnonzero(counted)
    places = np.zeros(len(counted), dtype=np.intp)
    places[present] = np.arange(len(present))
    return places[keys], [(key % width, key // width) for key in present.tolist()]


def _is_column(values: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(values, np.ndarray) and values.shape == shape and values.dtype.kind in "biuf"


def _clipped(wanted: tuple[int, int] | None, count: int, name: str) -> tuple[tuple[int, int], list[str]]:
    """A range inside of what there is, and what of the whole is not in it."""
    first, stop = (0, count) if wanted is None else wanted
    first, stop = max(0, min(first, count)), max(0, min(stop, count))
    stop = max(first, stop)
    if (first, stop) == (0, count):
        return (first, stop), []
    return (first, stop), [f"{name} {first}:{stop} of {count:,}"]
