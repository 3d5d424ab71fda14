"""Raw documents whose tokens are known without a tokenizer, and reading them back from batches.

A document is a list of numbers below 1,000; its text is those numbers, and the tokenizer gives every number itself. So
what a batch must hold can be said in plain Python, and every token of every batch can be traced and compared.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.data import Batch, Cursor, join

WORDS = 1000
Document = list[int]
#: Source, epoch and sample; what of it was delivered.
Delivered = dict[tuple[str, int, int], list[tuple[int, int]]]


def write_tokenizer(path: Path, *, first: int = 0) -> Path:
    """A tokenizer that turns the number n into the token n; with ``first`` it is another one with other tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    vocabulary = {str(number): first + number for number in range(WORDS)} | {"[UNK]": first + WORDS}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def some_documents(count: int, *, longest: int, seed: int = 0, empty: bool = True) -> list[Document]:
    """Documents of random lengths, a few of them empty."""
    draws = random.Random(seed)
    lengths = [draws.randint(0 if empty else 1, longest) for _ in range(count)]
    return [[draws.randrange(WORDS) for _ in range(length)] for length in lengths]


@dataclass
class Corpus:
    """Raw files, their registry, and the documents in them by dataset and row."""

    folder: Path
    documents: dict[str, list[Document]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry = ps.Registry(self.folder / "registry")
        self.tokenizer = write_tokenizer(self.folder / "tokenizer.json")

    @classmethod
    def again(cls, folder: str) -> "Corpus":
        """A corpus that was written before, to be read."""
        return cls(Path(folder))

    def add(self, name: str, documents: Sequence[Document], *, shards: int = 1) -> str:
        """Register documents as JSON lines, row n with the fields id = n and lang; returns the address."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": n, "lang": language(n), "text": " ".join(map(str, document))}
            for n, document in enumerate(documents)
        ]
        for number, part in enumerate(np.array_split(np.arange(len(rows)), shards)):
            text = "".join(json.dumps(rows[n]) + "\n" for n in part)
            (folder / f"{number:03d}.jsonl").write_text(text)
        self.documents[name] = [list(document) for document in documents]
        return self.registry.register(name, folder).address

    def stages(self, length: int, policy: Any = "concat") -> list[Any]:
        """Tokenize, then pack."""
        return [ps.Tokenize(str(self.tokenizer)), ps.Pack(length, policy)]

    def recipe(self, *sources: Any, length: int = 16, policy: str = "concat", **fields: Any) -> ps.Recipe:
        """A recipe over sources, which may be plain addresses."""
        chosen = [source if isinstance(source, ps.Source) else ps.Source(source) for source in sources]
        fields = {"batch": 4, "seed": 17, "stages": self.stages(length, policy)} | fields
        return ps.Recipe(sources=chosen, **fields)

    def open(self, recipe: ps.Recipe, **options: Any) -> Any:
        """A feed of this registry; reads in the caller's thread unless told otherwise."""
        return ps.open(recipe, registry=self.registry, **{"threads": 0, **options})

    def read(self, recipe: ps.Recipe, steps: int | None = None, **options: Any) -> list[Batch]:
        """The first batches, or all of a stream that ends."""
        with self.open(recipe, **options) as feed:
            return list(feed) if steps is None else [next(feed) for _ in range(steps)]

    def trace(self, batches: Iterable[Batch], delivered: Delivered | None = None) -> Delivered:
        """Every span of every row, each compared token by token with its document."""
        spans: Delivered = defaultdict(list) if delivered is None else delivered
        for batch in batches:
            tokens = batch["tokens"]
            for row in range(len(tokens)):
                for origin in batch.origin(row):
                    (start, stop), (at, end) = origin.token_span, origin.row_span
                    document = self.documents[origin.version.partition("@")[0]][origin.sample]
                    assert tokens[row, at:end].tolist() == document[start:stop], origin
                    spans[origin.source, origin.epoch, origin.sample].append((start, stop))
        return spans


def language(row: int) -> str:
    """The field ``lang`` of a row."""
    return ("en", "de", "fr")[row * row % 7 % 3]


def assert_once(delivered: Delivered, source: str, epoch: int, documents: dict[int, Document]) -> None:
    """Of these documents (by row) every token was delivered exactly once in the epoch, and of others nothing."""
    seen = {key[2]: sorted(spans) for key, spans in delivered.items() if key[:2] == (source, epoch)}
    assert set(seen) == {row for row, document in documents.items() if document}
    for row, spans in seen.items():
        ends = [stop for _, stop in spans]
        assert [start for start, _ in spans] == [0, *ends[:-1]], (source, epoch, row, spans)
        assert ends[-1] == len(documents[row])


def epochs_of(delivered: Delivered, source: str) -> int:
    """How many epochs of a source are complete for sure: the last one that was begun may not be."""
    return max((epoch for name, epoch, _ in delivered if name == source), default=0)


def same(one: Batch, other: Batch) -> bool:
    """Bit for bit the same tokens, boundaries and digest."""
    arrays = all(np.array_equal(one[name], other[name]) for name in ("tokens", "cu_seqlens"))
    return arrays and one["tokens"].dtype == other["tokens"].dtype and one.digest == other.digest


@dataclass(frozen=True)
class Whole:
    """The batch of a step, however many lanes it was dealt to."""

    step: int
    digest: str
    tokens: bytes
    cu_seqlens: tuple[int, ...]


def whole(batches: Sequence[Batch]) -> Whole:
    """The lanes of a step put together."""
    ends = [0]
    for batch in batches:
        ends += (batch["cu_seqlens"][1:] + ends[-1]).tolist()
    tokens = np.concatenate([batch["tokens"] for batch in batches])
    return Whole(batches[0].step, join([batch.digest for batch in batches]), tokens.tobytes(), tuple(ends))


def read_lanes(
    corpus: Corpus, recipe: ps.Recipe, cursor: str | None, lanes: int, threads: int, steps: int
) -> tuple[list[list[Batch]], str]:
    """Some steps of all lanes from a cursor on, and the cursor after them, which every lane must agree on."""
    at = None if cursor is None else Cursor.from_json(cursor)
    feeds = [corpus.open(recipe, lane=ps.Lane(k, of=lanes), cursor=at, threads=threads) for k in range(lanes)]
    try:
        batches = [[next(feed) for feed in feeds] for _ in range(steps)]
        (after,) = {feed.cursor.to_json() for feed in feeds}
        return batches, after
    finally:
        for feed in feeds:
            feed.close()
