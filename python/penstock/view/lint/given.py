"""Batches as checks see them, whoever made them: Penstock's own with documents and origins, or the tensors after somebody's collate.

Of a foreign batch these names are read: ``tokens`` or ``input_ids``; ``loss_mask``, or ``labels`` with -100 where nothing is learned;
``segments``, ``segment_ids``, ``document_ids`` or ``seq_idx`` (0 is padding where the mask says so); ``attention_mask``; ``positions`` or
``position_ids``; ``cu_seqlens``; ``prompt_mask``; ``sources`` (a name for each row); ``samples`` (what a row is, to find it twice).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import UsageError
from penstock.view.model.repeats import Stretch
from penstock.view.model.vocabulary import Vocabulary

IGNORED = -100
_BOS = re.compile(r"<s>|<bos>|\[CLS\]|<\|begin_of_text\|>|<\|startoftext\|>|<\|bos\|>", re.IGNORECASE)
_EOS = re.compile(r"</s>|<eos>|\[SEP\]|<\|end_of_text\|>|<\|endoftext\|>|<\|eos\|>|<\|eot\|>", re.IGNORECASE)
_PAD = re.compile(r"<pad>|\[PAD\]|<\|pad\|>|<\|padding\|>|<\|finetune_right_pad_id\|>", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[<\[]\W*/?(?:start_of_|end_of_)?(?:image|img|vision|video|audio|speech)\w*\W*[>\]]", re.IGNORECASE
)
#: Names that mean the same.
_NAMES = {
    "tokens": ("tokens", "input_ids"),
    "loss": ("loss_mask", "labels"),
    "segments": ("segments", "segment_ids", "document_ids", "seq_idx", "sequence_ids"),
    "positions": ("positions", "position_ids"),
    "cu_seqlens": ("cu_seqlens", "cu_seq_lens_q", "cu_seqlens_q"),
}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the data should be like; what is not known is not checked."""

    #: Numbers from here on stand for nothing.
    vocabulary_size: int | None = None
    #: Numbers of special tokens.
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    #: Tokens that must never count in the loss: places of images, of audio, headers of prompts.
    placeholders: frozenset[int] = frozenset()
    #: Whether every document begins (ends) with its special token.
    begins: bool = False
    ends: bool = False
    #: Shares of sources, by name.
    weights: Mapping[str, float] = field(default_factory=dict)
    #: Limits: share of documents cut short, and how far a source's share of the loss may pass its weight.
    truncated_max: float = 0.05
    dominance_max: float = 0.25

    def knowing(self, vocabulary: Vocabulary | None) -> "Expected":
        """The same, with what a tokenizer says of its special tokens where nothing else was said."""
        if vocabulary is None:
            return self
        named = {text: number for number, text in vocabulary.specials.items()}
        places = {number for text, number in named.items() if _PLACEHOLDER.fullmatch(text)}
        return replace(
            self,
            vocabulary_size=self.vocabulary_size or vocabulary.size,
            bos=_first(self.bos, named, _BOS),
            eos=_first(self.eos, named, _EOS),
            pad=_first(self.pad, named, _PAD),
            placeholders=self.placeholders | places,
        )


@dataclass(frozen=True)
class Given:
    """One batch."""

    tokens: npt.NDArray[np.int64]
    #: Whether a token is no padding.
    real: npt.NDArray[np.bool_]
    #: The address of a row and a token.
    place: Callable[[int, int | None], str]
    loss: npt.NDArray[np.bool_] | None = None
    #: What attention keeps apart: the number of its segment for each token. All zeros when nothing is kept apart.
    segments: npt.NDArray[np.int64] | None = None
    positions: npt.NDArray[np.int64] | None = None
    prompt: npt.NDArray[np.bool_] | None = None
    #: What rows are made of, in order: first token, end, and the sample; None where nobody knows.
    documents: Sequence[Sequence[tuple[int, int, Stretch]]] | None = None
    #: Rows whose tokens somebody made before, so that what is one sample may be several documents.
    stored: npt.NDArray[np.bool_] | None = None
    #: The name of each row's source.
    sources: Sequence[str] | None = None
    #: Shares of sources, where they are known for this batch.
    weights: Mapping[str, float] | None = None
    #: Documents that lost tokens to a limit, and how many there were.
    truncated: tuple[int, int] | None = None
    #: How many numbers the tokenizer of each row has; 0 where that is not known.
    sizes: npt.NDArray[np.int64] | None = None

    def starts(self, bos: int | None) -> npt.NDArray[np.bool_]:
        """Where documents begin, as far as that is known: by origin, and by a token that begins one."""
        found = np.zeros(self.tokens.shape, dtype=np.bool_)
        if bos is not None and (self.documents is None or self.stored is not None):
            found |= self.tokens == bos
            # Two in a row are a doubled token, not two documents.
            found[:, 1:] &= ~(self.tokens[:, :-1] == bos)
        if self.stored is not None:
            found &= self.stored[:, None]
        for row, documents in enumerate(self.documents or ()):
            for first, _, _ in documents:
                found[row, first] = True
        return found & self.real


def given_of(batch: Mapping[str, Any], number: int, pad: int | None) -> Given:
    """A batch that somebody else made."""
    arrays = {name: _found(batch, names) for name, names in _NAMES.items()}
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
    if segments is None and arrays["cu_seqlens"] is not None:
        segments = _segments(arrays["cu_seqlens"], shape, number)
    real = attention != 0 if attention is not None else np.ones(shape, dtype=np.bool_)
    if pad is not None:
        real = real & ~_trailing(ids == pad)
    sources = batch.get("sources")
    return Given(
        tokens=ids,
        real=real,
        place=lambda row, token: f"batch {number}, row {row}" + ("" if token is None else f", token {token}"),
        loss=_loss(batch, arrays["loss"], shape),
        segments=segments,
        positions=_reshaped(arrays["positions"], shape),
        prompt=None if (found := _shaped(batch, "prompt_mask", shape)) is None else found != 0,
        sources=None if sources is None else [str(each) for each in sources],
    )


def _first(known: int | None, named: Mapping[str, int], pattern: re.Pattern[str]) -> int | None:
    if known is not None:
        return known
    found = [number for text, number in named.items() if pattern.fullmatch(text)]
    return min(found, default=None)


def _found(batch: Mapping[str, Any], names: tuple[str, ...]) -> npt.NDArray[Any] | None:
    return next((_array(batch[name]) for name in names if batch.get(name) is not None), None)


def _array(value: Any) -> npt.NDArray[Any]:
    """Arrays of numpy, tensors of any device, nested lists."""
    for step in ("detach", "cpu"):
        if hasattr(value, step):
            value = getattr(value, step)()
    return np.asarray(value)


def _shaped(batch: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
    value = batch.get(name)
    return None if value is None else _reshaped(_array(value), shape)


def _reshaped(array: npt.NDArray[Any] | None, shape: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
    """An array of the batch's shape; one of another shape (four-dimensional masks, one position for several axes) says nothing here."""
    if array is None or array.size != shape[0] * shape[1]:
        return None
    return array.reshape(shape).astype(np.int64)


def _loss(
    batch: Mapping[str, Any], array: npt.NDArray[Any] | None, shape: tuple[int, ...]
) -> npt.NDArray[np.bool_] | None:
    found = _reshaped(array, shape)
    if found is None:
        return None
    counts: npt.NDArray[np.bool_] = found != (0 if batch.get("loss_mask") is not None else IGNORED)
    return counts


def _segments(boundaries: npt.NDArray[Any], shape: tuple[int, ...], number: int) -> npt.NDArray[np.int64]:
    size = shape[0] * shape[1]
    edges = boundaries.reshape(-1).astype(np.int64)
    if len(edges) < 2 or edges[0] != 0 or edges[-1] > size or (np.diff(edges) < 0).any():
        raise UsageError(
            f"the cu_seqlens of batch {number} do not run from 0 to its {size} tokens: {edges[:8].tolist()} …"
        )
    flat = np.searchsorted(edges, np.arange(size), side="right")
    return flat.reshape(shape).astype(np.int64)


def _trailing(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Of a mask, what reaches the end of its row: padding stands there, and the same number elsewhere may be a token."""
    found: npt.NDArray[np.bool_] = np.logical_and.accumulate(mask[:, ::-1], axis=1)[:, ::-1]
    return found
