"""A small library of texts that are hard to show, tokenizers of every style, and a registry of them; all real, nothing large."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.view.opener import Opener

#: Text of several alphabets, text that would act on a terminal or a page, and characters that hide.
HOSTILE = [
    "plain words and some more of them",
    "snow ☃ and 😀 family 👨‍👩‍👧 in 日本語 кириллица",
    "<script>alert('x')</script><img src=x onerror=alert(1)>",
    "red \x1b[31malarm\x1b[0m bell\x07 and \x1b]0;title\x07",
    "right\u202eto left, zero\u200bwidth, nothing\u00a0breaks, replaced \ufffd",
    "line one\nline two\ttab\r\n\u0085next",
    "e\u0301 combining",
]
CONVERSATIONS = [
    {
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": f"question {n} about snow ☃"},
            {"role": "assistant", "content": f"answer {n} in words"},
        ]
    }
    for n in range(40)
]
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIALS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<pad>"]


def byte_level(path: Path) -> Path:
    """A byte-level BPE whose vocabulary is small, so that characters fall apart into several tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(word, special=True) for word in SPECIALS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(HOSTILE[:1] * 5, trainer)
    tokenizer.save(str(path))
    return path


def metaspace(path: Path) -> Path:
    """As Llama's: a metaspace, and bytes for what the vocabulary lacks."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += sorted({letter for letter in "plainwordsmefth" if letter not in pieces})
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(path))
    return path


def word_pieces(path: Path) -> Path:
    """As BERT's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["[UNK]", "[CLS]", "plain", "word", "##s", "and", "some", "more", "of", "them"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[UNK]", "[CLS]"])
    tokenizer.save(str(path))
    return path


def ranks(path: Path) -> Path:
    """A file of ranks: every byte, and a few pairs."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"wo", b"wor", b"an"]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    path.write_text("\n".join(lines) + "\n")
    return path


@dataclass
class Library:
    """A folder with tokenizers, texts and their registry."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.registry = ps.Registry(self.folder / "registry")
        self.opener = Opener(self.registry)
        self.tokenizer = byte_level(self.folder / "tokenizer.json")

    def add(self, name: str, rows: list[dict[str, Any]]) -> str:
        """Register rows as JSON lines."""
        # A file of its own for every edition.
        path = self.folder / f"{name}-{len(list(self.folder.glob('*.jsonl')))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self.registry.register(name, path).address

    def add_texts(self, name: str, texts: list[str]) -> str:
        """Register texts."""
        return self.add(name, [{"id": n, "text": text} for n, text in enumerate(texts)])

    def write(self, name: str, text: str) -> str:
        """A recipe's file."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def recipe(self, source: str, *, tokenizer: Path | None = None, more: str = "", **pack: Any) -> str:
        """A recipe that tokenises and packs one source; its file."""
        shape = {"length": 32} | pack
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in shape.items())
        used = tokenizer or self.tokenizer
        extra = 'pattern = "gpt2"' if used.suffix == ".tiktoken" else ""
        return self.write(
            f"{source.partition('@')[0]}-{used.stem}-{abs(hash((more, lines)))}.toml",
            f"""
seed = 5
batch = 4
shuffle = "none"
[[sources]]
name = "{source}"
[[stages]]
kind = "tokenize"
tokenizer = "{used.name}"
{extra}
{more}
[[stages]]
kind = "pack"
{lines}
""",
        )

    def chat(self, source: str, **pack: Any) -> str:
        """A recipe of conversations; its file."""
        (self.folder / "chat.jinja").write_text(TEMPLATE)
        shape = {"length": 64, "policy": "fit"} | pack
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in shape.items())
        return self.write(
            "chat.toml",
            f"""
seed = 5
batch = 4
[[sources]]
name = "{source}"
[[stages]]
kind = "chat"
tokenizer = "{self.tokenizer.name}"
template = "chat.jinja"
[[stages]]
kind = "pack"
{lines}
""",
        )
