"""Batches as checks see them, whoever made them: Penstock's own with documents and origins, or the tensors after somebody's collate.

Of a foreign batch these names are read: ``tokens`` or ``input_ids``; ``labels`` with -100 where nothing is learned, and ``loss_mask``;
``segments``, ``segment_ids``, ``document_ids`` or ``seq_idx`` (0 is padding where the mask says so); ``attention_mask``; ``positions`` or
``position_ids``; ``cu_seqlens``; ``prompt_mask``; ``sources`` (a name for each row). Labels stand at their token, or already one
before it, as loops have them that do not shift in the model; masks are understood accordingly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import UsageError
from penstock.view.lint.piece import Piece
from penstock.view.lint.specials import Specials
from penstock.view.model.tokens.vocabulary import Vocabulary

IGNORED = -100
#: Names that mean the same.
_NAMES = {
    "tokens": ("tokens", "input_ids"),
    "segments": ("segments", "segment_ids", "document_ids", "seq_idx", "sequence_ids"),
    "positions": ("positions", "position_ids"),
    "cu_seqlens": ("cu_seqlens", "cu_seq_lens_q", "cu_seqlens_q"),
}
#: Places by which labels may be moved against tokens; at the token, or one before it, is right.
_SHIFTS = (0, 1, 2, -1)
#: Labels that must agree with tokens before it is claimed that they are moved.
_AGREEING_MIN = 0.9


class _Said(dict[int, bytes]):
    """What tokens stand for, looked up once each; some say nothing."""

    def __init__(self, vocabulary: Vocabulary, silent: frozenset[int] = frozenset()) -> None:
        super().__init__(dict.fromkeys(silent, b""))
        self._vocabulary = vocabulary
        # Words and pieces of them are stored without the spaces that stood between them.
        words = vocabulary.style == "text" and not any(" " in text for text in vocabulary.texts.values())
        self._spaced = words or vocabulary.style == "pieces"

    def __missing__(self, token: int) -> bytes:
        data = self._vocabulary.bytes_of(token) or b""
        continues = self._vocabulary.texts.get(token, "").startswith("##")
        spelling = self[token] = b" " + data if self._spaced and not continues else data
        return spelling


@dataclass(frozen=True)
class Known:
    """The tokenizer of a source, and what its special tokens are for."""

    vocabulary: Vocabulary | None = None
    specials: Specials = field(default_factory=Specials)

    @cached_property
    def said(self) -> Mapping[int, bytes]:
        """What each token stands for; nothing where the tokenizer has no such number."""
        assert self.vocabulary is not None
        return _Said(self.vocabulary)

    @cached_property
    def written(self) -> Mapping[int, bytes]:
        """The same, where special tokens say nothing: they are not what anybody wrote."""
        assert self.vocabulary is not None
        return _Said(self.vocabulary, self.specials.every)


@dataclass(frozen=True)
class CheckedBatch:
    """One batch."""

    tokens: npt.NDArray[np.int64]
    #: Whether a token is no padding.
    real: npt.NDArray[np.bool_]
    #: The address of a row and a token.
    place: Callable[[int, int | None], str]
    #: Which tokens the model learns to say.
    loss: npt.NDArray[np.bool_] | None = None
    #: What attention keeps apart: the number of its segment for each token. All zeros when nothing is kept apart.
    segments: npt.NDArray[np.int64] | None = None
    positions: npt.NDArray[np.int64] | None = None
    prompt: npt.NDArray[np.bool_] | None = None
    #: What rows are made of, in order.
    pieces: Sequence[Piece] = ()
    #: Whether origins say what pieces are; otherwise they were guessed from the batch itself.
    has_origins: bool = False
    #: Names of sources whose rows are crops, which have the same tokens again by design.
    cropped: frozenset[str] = frozenset()
    #: By source; what is called "" is for all others.
    known: Mapping[str, Known] = field(default_factory=dict)
    #: The name of each row's source.
    sources: Sequence[str] | None = None
    #: Shares of sources, where they are known for this batch.
    weights: Mapping[str, float] | None = None
    #: Documents that lost tokens to a limit, and how many there were.
    truncated: tuple[int, int] | None = None
    #: By how many places labels are moved against tokens; None where there are none, or where they are something else.
    shift: int | None = None
    #: Of the labels that count, how many are their token at that place.
    agreeing: float = 1.0
    #: Where attention is told that documents begin, of all rows one after another.
    edges: npt.NDArray[np.int64] | None = None
    #: Whether the batch itself says which tokens are padding.
    says_padding: bool = False
    #: Documents whose text was asked for, by place.
    _texts: dict[tuple[int, int], str] = field(default_factory=dict, repr=False)

    def of(self, piece: Piece) -> Known:
        """What is known of a piece's tokens."""
        return self.known.get(piece.source) or self.known.get("") or Known()

    def ids(self, piece: Piece) -> npt.NDArray[np.int64]:
        """The tokens of a piece."""
        ids: npt.NDArray[np.int64] = self.tokens[piece.row, piece.at : piece.stop]
        return ids

    def bytes_of(self, piece: Piece) -> bytes | None:
        """What a piece says, special tokens among it; None where there is no tokenizer."""
        known = self.of(piece)
        if known.vocabulary is None:
            return None
        return b"".join(map(known.said.__getitem__, self.ids(piece).tolist()))

    def text(self, piece: Piece) -> str | None:
        """What somebody wrote, without special tokens; bytes that are no characters become lone surrogates."""
        known = self.of(piece)
        if known.vocabulary is None:
            return None
        key = (piece.row, piece.at)
        if key not in self._texts:
            data = b"".join(map(known.written.__getitem__, self.ids(piece).tolist()))
            self._texts[key] = data.decode("utf-8", "surrogateescape")
        return self._texts[key]

    def offsets(self, piece: Piece, said: Mapping[int, bytes]) -> npt.NDArray[np.int64]:
        """Where in its bytes every token of a piece begins, and where the last ends."""
        sizes = [len(said[token]) for token in self.ids(piece).tolist()]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def token_at(self, piece: Piece, character: int) -> int:
        """The token in which a character of the text stands."""
        text = self.text(piece) or ""
        byte = len(text[:character].encode("utf-8", "surrogateescape"))
        offsets = self.offsets(piece, self.of(piece).written)
        index = int(np.searchsorted(offsets, byte, side="right")) - 1
        return piece.at + max(0, min(index, piece.length - 1))

    @cached_property
    def starts(self) -> npt.NDArray[np.bool_]:
        """Where documents begin, as far as that is known."""
        starts = np.zeros(self.tokens.shape, dtype=np.bool_)
        for piece in self.pieces:
            if piece.begins is not False:
                starts[piece.row, piece.at] = True
        return starts & self.real


def checked_batch_of(batch: Mapping[str, Any], number: int, pad: int | None) -> CheckedBatch:
    """A batch that somebody else made; what its documents are is not yet looked at."""
    arrays = {name: _first_array(batch, names) for name, names in _NAMES.items()}
    tokens = arrays["tokens"]
    if tokens is None:
        known = ", ".join(str(name) for name in batch)
        raise UsageError(f"batch {number} has no tokens: it has {known}", hint="tokens, or input_ids")
    if tokens.ndim not in (1, 2) or tokens.dtype.kind not in "iu":
        raise UsageError(f"the tokens of batch {number} are {tokens.dtype} of shape {list(tokens.shape)}")
    shape = tokens.shape if tokens.ndim == 2 else (1, tokens.size)
    ids = tokens.reshape(shape).astype(np.int64)
    attention = _shaped(batch, "attention_mask", shape)
    segments = _reshaped(arrays["segments"], shape)
    if segments is None and attention is not None and attention.max(initial=0) > 1:
        # Some collators number documents in the mask itself.
        segments = attention
    edges = None if arrays["cu_seqlens"] is None else _edges(arrays["cu_seqlens"], ids.size, number)
    if segments is None and edges is not None:
        flat = np.searchsorted(edges, np.arange(ids.size), side="right")
        segments = flat.reshape(shape).astype(np.int64)
    real = attention != 0 if attention is not None else np.ones(shape, dtype=np.bool_)
    if pad is not None:
        real = real & ~trailing(ids == pad)
    sources = batch.get("sources")
    if sources is not None and len(sources) != shape[0]:
        raise UsageError(f"batch {number} names {len(sources)} sources for {shape[0]} rows")
    loss, shift, agreeing = _loss(batch, ids)
    return CheckedBatch(
        tokens=ids,
        real=real,
        place=lambda row, token: f"batch {number}, row {row}" + ("" if token is None else f", token {token}"),
        loss=loss,
        segments=segments,
        positions=_reshaped(arrays["positions"], shape),
        prompt=None if (mask := _shaped(batch, "prompt_mask", shape)) is None else mask != 0,
        sources=None if sources is None else [str(source) for source in sources],
        shift=shift,
        agreeing=agreeing,
        edges=edges,
        says_padding=attention is not None or pad is not None,
    )


def _first_array(batch: Mapping[str, Any], names: tuple[str, ...]) -> npt.NDArray[Any] | None:
    return next((_array(batch[name]) for name in names if batch.get(name) is not None), None)


def _array(value: Any) -> npt.NDArray[Any]:
    """Arrays of numpy, tensors of any device, nested lists."""
    for step in ("detach", "cpu"):
        if hasattr(value, step):
            value = getattr(value, step)()
    # What numpy has no type for has one of double width.
    return np.asarray(value.float() if "bfloat16" in str(getattr(value, "dtype", "")) else value)


def _shaped(batch: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
    value = batch.get(name)
    return None if value is None else _reshaped(_array(value), shape)


def _reshaped(array: npt.NDArray[Any] | None, shape: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
    """An array of the batch's shape; one of another shape (four-dimensional masks, one position for several axes) says nothing here."""
    if array is None or array.size != shape[0] * shape[1]:
        return None
    return array.reshape(shape).astype(np.int64)


def _loss(
    batch: Mapping[str, Any], ids: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_] | None, int | None, float]:
    """Which tokens are learned; by how much labels are moved, and how many agree there."""
    mask = _shaped(batch, "loss_mask", ids.shape)
    labels = None if "decoder_input_ids" in batch else _shaped(batch, "labels", ids.shape)
    if labels is None:
        return (None if mask is None else mask != 0), None, 1.0
    counts = labels != IGNORED
    if mask is not None:
        counts = counts & (mask != 0)
    shift, agreeing = _moved(labels, ids, counts)
    if shift != 1:
        return counts, shift, agreeing
    at_token = np.zeros_like(counts)
    at_token[:, 1:] = counts[:, :-1]
    return at_token, shift, agreeing


def _moved(
    labels: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], counts: npt.NDArray[np.bool_]
) -> tuple[int | None, float]:
    """By how many places labels are moved; None where they are no tokens of the batch."""
    width = ids.shape[1]
    shares: dict[int, float] = {}
    for shift in _SHIFTS:
        at, to = max(0, -shift), width - max(0, shift)
        if to <= at:
            continue
        compared = counts[:, at:to]
        same = labels[:, at:to] == ids[:, at + shift : to + shift]
        shares[shift] = float(same[compared].mean()) if compared.any() else 0.0
    if not counts.any():
        return 0, 1.0
    # Text that repeats itself agrees at several places; the right ones are tried first.
    shift = max(shares, key=lambda candidate: (shares[candidate], -_SHIFTS.index(candidate)))
    for right in (0, 1):
        if shares.get(right, 0.0) >= _AGREEING_MIN:
            return right, shares[right]
    return (shift, shares[shift]) if shares[shift] >= _AGREEING_MIN else (None, shares[shift])


def _edges(boundaries: npt.NDArray[Any], size: int, number: int) -> npt.NDArray[np.int64]:
    edges = boundaries.reshape(-1).astype(np.int64)
    if len(edges) < 2 or edges[0] != 0 or edges[-1] > size or (np.diff(edges) < 0).any():
        raise UsageError(
            f"the cu_seqlens of batch {number} do not run from 0 to its {size} tokens: {edges[:8].tolist()} …"
        )
    return edges


def trailing(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Of a mask, what reaches the end of its row: padding stands there, and the same number elsewhere may be a token."""
    reaching: npt.NDArray[np.bool_] = np.logical_and.accumulate(mask[:, ::-1], axis=1)[:, ::-1]
    return reaching
