"""What the special tokens of a tokenizer are for: which begin and end a text, end a turn, fill up rows, or stand for an image.

A tokenizer's file only says which tokens are special. What they are for is said by the configuration beside it
(``tokenizer_config.json``, ``special_tokens_map.json``), and otherwise by their usual names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from penstock.view.model.tokens.vocabulary import Vocabulary

_BEGIN = re.compile(
    r"<s>|<bos>|\[CLS\]|\[BOS\]|<\|begin_of_text\|>|<\|startoftext\|>|<\|bos\|>|<｜begin▁of▁sentence｜>",
    re.IGNORECASE,
)
_END = re.compile(
    r"</s>|<eos>|\[SEP\]|\[EOS\]|<\|end_of_text\|>|<\|endoftext\|>|<\|eos\|>|<\|eot\|>|<\|return\|>|"
    r"<｜end▁of▁sentence｜>|<end_of_text>",
    re.IGNORECASE,
)
_END_OF_TURN = re.compile(
    r"<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<turn\|>|<\|end\|>|<\|end_of_turn\|>|<\|endofturn\|>|"
    r"<\|eot\|>|<\|return\|>|<\|call\|>|<\|END_OF_TURN_TOKEN\|>|<\|(?:user|assistant|system)_end\|>|<\|end_of_message\|>",
    re.IGNORECASE,
)
_PAD = re.compile(
    r"<pad>|\[PAD\]|<\|pad\|>|<\|padding\|>|<\|finetune_right_pad_id\|>|<｜▁pad▁｜>", re.IGNORECASE
)
_UNKNOWN = re.compile(r"<unk>|\[UNK\]|<\|unk\|>|<unknown>", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[<\[]\W*/?(?:start_of_|end_of_)?(?:image|img|vision|video|audio|speech)\w*\W*[>\]]", re.IGNORECASE
)
#: Tokens that begin a turn, or the name of who speaks in it.
_HEADER = re.compile(
    r"<\|im_start\|>|<\|start_header_id\|>|<\|end_header_id\|>|<start_of_turn>|<\|turn>|\[/?INST\]|<\|start\|>|"
    r"<\|message\|>|<\|channel\|>|<[|｜](?:user|assistant|system|tool)[|｜]>|<\|header_(?:start|end)\|>",
    re.IGNORECASE,
)
_CONFIGURATIONS = ("tokenizer_config.json", "special_tokens_map.json")
_BYTES_MAX = 1 << 24
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Specials:
    """Special tokens by what they are for, as numbers."""

    begin: frozenset[int] = _NONE
    #: What ends a text, and what ends a turn of a conversation.
    end: frozenset[int] = _NONE
    end_of_turn: frozenset[int] = _NONE
    pad: frozenset[int] = _NONE
    unknown: frozenset[int] = _NONE
    placeholder: frozenset[int] = _NONE
    header: frozenset[int] = _NONE
    #: All of them, whatever they are for.
    every: frozenset[int] = _NONE

    @property
    def ends(self) -> frozenset[int]:
        """What may stand last in a document."""
        return self.end | self.end_of_turn

    def with_end(self, numbers: Iterable[int]) -> "Specials":
        """The same, where these end a text too."""
        return replace(self, end=self.end | frozenset(numbers))


def specials_of(vocabulary: Vocabulary) -> Specials:
    """The special tokens of a tokenizer."""
    named = {text: number for number, text in vocabulary.specials.items()}
    # Some vocabularies have their unknown token only in the model, not among the added ones.
    plain = {text: number for number, text in vocabulary.texts.items() if _UNKNOWN.fullmatch(text)}
    said = configured(Path(vocabulary.path))
    numbers = {**{text: number for number, text in vocabulary.added.items()}, **named}

    def chosen(pattern: re.Pattern[str], name: str = "") -> frozenset[int]:
        tokens = {number for text, number in named.items() if pattern.fullmatch(text)}
        extra = numbers.get(said.get(name, ""))
        return frozenset(tokens if extra is None else {*tokens, extra})

    end = chosen(_END, "eos_token")
    begin = chosen(_BEGIN, "bos_token") - end
    return Specials(
        begin=begin,
        end=end,
        end_of_turn=chosen(_END_OF_TURN),
        pad=chosen(_PAD, "pad_token") - end,
        unknown=(chosen(_UNKNOWN, "unk_token") | frozenset(plain.values())) - end - begin,
        placeholder=chosen(_PLACEHOLDER),
        header=chosen(_HEADER),
        every=frozenset(vocabulary.specials),
    )


def configured(tokenizer: Path) -> dict[str, str]:
    """What the files beside a tokenizer say of special tokens, such as ``eos_token``; nothing where there are none."""
    words: dict[str, str] = {}
    for name in _CONFIGURATIONS:
        path = tokenizer.parent / name
        try:
            if path.stat().st_size > _BYTES_MAX:
                continue
            values: Mapping[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        for key, value in values.items():
            word = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(word, str):
                words.setdefault(key, word)
    return words
