"""A bench for lint: real prose and code from the standard library, a tokenizer trained on it, and recipes over small registries of both.

``Case`` is a line of a table: somebody did something to the data, and lint finds it, or has nothing to say.
"""

import inspect
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import penstock as ps
from penstock.view.address import parse
from penstock.view.lint import Expected, LintReport, lint_stream
from penstock.view.opener import OpenedStream, Opener

BOS, EOS, TURN, TURN_END, PAD, IMAGE = range(6)
SPECIALS = ["<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>", "<image>"]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Row = dict[str, Any]


@cache
def paragraphs() -> list[str]:
    """Some paragraphs of Python's reference: prose that people wrote, each once."""
    from pydoc_data.topics import topics

    parts = [" ".join(part.split()) for text in topics.values() for part in text.split("\n\n")]
    return list(dict.fromkeys(part for part in parts if 150 <= len(part) <= 1500))[:480]


@cache
def modules() -> list[str]:
    """Functions of the standard library as they are written."""
    import argparse
    import difflib
    import statistics
    import textwrap

    members = [
        member
        for module in (argparse, difflib, statistics, textwrap)
        for _, member in inspect.getmembers(module)
        if inspect.isfunction(member) or inspect.isclass(member)
    ]
    sources = []
    for function in members:
        try:
            sources.append(inspect.getsource(function)[:3000])
        except (OSError, TypeError):
            continue
    return [text for text in dict.fromkeys(sources) if len(text) > 200]


def prose(alphabet: str, count: int, seed: int = 0) -> list[str]:
    """Texts of made-up words in an alphabet."""
    draws = random.Random(seed)
    words = ["".join(draws.choices(alphabet, k=draws.randint(2, 9))) for _ in range(3000)]
    return [" ".join(draws.choices(words, k=draws.randint(30, 80))).capitalize() + "." for _ in range(count)]


def chats(count: int, *, turns: int = 1) -> list[Row]:
    """Conversations about the reference: short questions, long answers."""
    known = paragraphs()
    rows = []
    for number in range(count):
        messages = [
            {
                "role": "system",
                "content": "You are a helpful assistant. Answer briefly and be kind to people.",
            }
        ]
        for turn in range(turns):
            text = known[(number * turns + turn) % len(known)]
            messages.append({"role": "user", "content": f"What about {' '.join(text.split()[:4])}?"})
            messages.append({"role": "assistant", "content": text})
        rows.append({"messages": messages})
    return rows


@cache
def _loaded(tokenizer: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(tokenizer))


@dataclass
class Bench:
    """A folder with tokenizers and a registry."""

    folder: Path

    def __post_init__(self) -> None:
        self.registry = ps.Registry(self.folder / "registry")
        self._made: dict[str, str] = {}
        self._recipes = 0

    @cached_property
    def tokenizer(self) -> Path:
        """A byte-level BPE of a few thousand words, which ends texts when it is asked to add special tokens."""
        return self._trained("tokenizer.json", [*paragraphs(), *modules()[:40]])

    @cached_property
    def other_tokenizer(self) -> Path:
        """Another one, trained on something else."""
        return self._trained("other.json", prose("etaoinshrdlu", 400))

    @cached_property
    def words_tokenizer(self) -> Path:
        """One that knows the words of the first hundred paragraphs and no others."""
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False)
        tokenizer.train_from_iterator(paragraphs(), trainer)
        tokenizer.save(str(self.folder / "words.json"))
        return self.folder / "words.json"

    def _trained(self, name: str, texts: list[str]) -> Path:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=2000,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[AddedToken(word, special=True) for word in SPECIALS],
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {SPECIALS[EOS]}", special_tokens=[(SPECIALS[EOS], EOS)]
        )
        tokenizer.save(str(self.folder / name))
        (self.folder / "chatml.jinja").write_text(CHATML)
        return self.folder / name

    def rows(self, name: str, rows: list[Row]) -> str:
        """Rows, registered once under a name."""
        if name not in self._made:
            path = self.folder / f"{name}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            self._made[name] = self.registry.register(name, path).address
        return self._made[name]

    def texts(self, name: str = "prose", texts: list[str] | None = None) -> str:
        """Texts, registered once under a name."""
        return self.rows(name, [{"text": text} for text in (paragraphs() if texts is None else texts)])

    def stored(self, name: str, rows: "np.ndarray[Any, Any]") -> str:
        """Tokens, registered once under a name."""
        if name not in self._made:
            np.save(self.folder / f"{name}.npy", rows)
            self._made[name] = self.registry.register(name, self.folder / f"{name}.npy").address
        return self._made[name]

    def encoded(self, texts: list[str], tokenizer: Path | None = None) -> list[list[int]]:
        """Texts as tokens, without special ones."""
        loaded = _loaded(tokenizer or self.tokenizer)
        return [encoding.ids for encoding in loaded.encode_batch(texts, add_special_tokens=False)]

    def tokenize(self, **more: Any) -> Row:
        """A stage that makes tokens of text and ends texts."""
        return {"kind": "tokenize", "tokenizer": str(self.tokenizer), "special": True} | more

    #: How text that spells special tokens becomes them.
    spelling: ClassVar[Row] = {"special_in_text": "token"}

    def chat(self, **more: Any) -> Row:
        """A stage that makes tokens of conversations."""
        stage = {
            "kind": "chat",
            "tokenizer": str(self.tokenizer),
            "template": str(self.folder / "chatml.jinja"),
        }
        assert self.tokenizer.exists()
        return stage | more

    def recipe(self, sources: str | list[Row], *stages: Row, **more: Any) -> Row:
        """A recipe; without stages its texts are tokenised and packed."""
        named = [{"name": sources}] if isinstance(sources, str) else sources
        chosen = list(stages) or [self.tokenize(), {"kind": "pack", "length": 256}]
        return {"batch": 4, "seed": 3, "sources": named, "stages": chosen} | more

    def stream(self, recipe: Row, **options: Any) -> OpenedStream:
        """A recipe, opened."""
        self._recipes += 1
        path = self.folder / f"recipe-{self._recipes}.json"
        path.write_text(json.dumps(recipe))
        opened = Opener(self.registry, **options).open(parse(str(path)))
        assert isinstance(opened, OpenedStream)
        return opened

    def lint(
        self, recipe: Row, steps: int = 8, expected: Expected | None = None, **options: Any
    ) -> LintReport:
        """What lint says of the first steps of a recipe."""
        return lint_stream(self.stream(recipe, **options), range(steps), expected)


@dataclass(frozen=True)
class Case:
    """A line of a table."""

    name: str
    #: What was done, or what the data is like.
    words: str
    make: Callable[[Bench], LintReport]
    #: What is found: the mistake itself, and what follows from it.
    kind: str = ""
    follow: tuple[str, ...] = ()


def kinds(report: LintReport) -> list[str]:
    """What was found."""
    return [finding.kind for finding in report.findings]
