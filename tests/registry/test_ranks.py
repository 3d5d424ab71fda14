"""Files of ranks, as tiktoken reads them, give tokens that decode to the text they came from."""

import base64
import inspect
import itertools
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Registry, errors
from penstock.registry.columns.measure import NothingToMeasure
from penstock.registry.tokenize.special_tokens import SpecialUse
from penstock.registry.tokenize.tiktoken import PATTERNS, RankTokens

WORDS = ["th", "the", "an", "and", " the", " and", "12", "123", "ä", "\n\n", "  ", "'s"]


def write_ranks(path: Path, words: list[str] = WORDS) -> Path:
    """All bytes, and some words made of two that come before them."""
    tokens = [bytes([byte]) for byte in range(256)] + [word.encode() for word in words]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    path.write_text("\n".join(lines) + "\n")
    return path


def slow_tokens(ranks: dict[bytes, int], pattern: str, text: str) -> list[int]:
    """Byte pairs are merged one at a time, lowest rank first, inside each piece that the pattern finds."""
    import regex

    tokens = []
    for piece in regex.findall(pattern, text):
        parts = [bytes([byte]) for byte in piece.encode()]
        while True:
            pairs = [
                (ranks[a + b], at) for at, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in ranks
            ]
            if not pairs:
                break
            _, at = min(pairs)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        tokens += [ranks[part] for part in parts]
    return tokens


TEXTS = ["the cat and the dog's 12345", "", "THE the\n\n  and  ", "naïve äöü 😀", "<|end|>the", "日本語 and"]


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+|\s|[^\w\s]"])
def test_tokens_are_those_of_slow_merging_and_decode_to_the_text(tmp_path: Path, pattern: str) -> None:
    path = write_ranks(tmp_path / "small.tiktoken")
    ranks = {
        base64.b64decode(line.split()[0]): int(line.split()[1]) for line in path.read_text().splitlines()
    }
    measure = RankTokens(path, pattern=pattern)
    lengths, payloads = measure.compute([measure.read({"text": text}) for text in TEXTS])
    for text, length, tokens in zip(TEXTS, lengths, payloads["tokens"], strict=True):
        assert tokens.tolist() == slow_tokens(ranks, measure.pattern, text)
        assert measure.encoding.decode(tokens.tolist()) == text
        assert length == len(tokens)
    assert any(number >= 256 for tokens in payloads["tokens"] for number in tokens)


def test_special_tokens_are_found_when_asked_for(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "small.tiktoken")
    special_tokens = {"<|end|>": 300}
    plain = RankTokens(path, pattern="gpt2", special_tokens=special_tokens)
    special = RankTokens(
        path, pattern="gpt2", special_tokens=special_tokens, specials=SpecialUse(in_text="token")
    )
    assert special.read({"text": "the<|end|>"}).tokens.tolist()[-1] == 300
    assert 300 not in plain.read({"text": "the<|end|>"}).tokens.tolist()
    wide = RankTokens(
        path, pattern="gpt2", special_tokens={"<|end|>": 70_000}, specials=SpecialUse(in_text="token")
    )
    assert (plain.payloads, wide.payloads) == ({"tokens": "<u2"}, {"tokens": "<u4"})


def test_a_version_is_tokenised_with_ranks(local: Registry, tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "small.tiktoken")
    rows = [{"text": TEXTS[row % len(TEXTS)] * (row % 5)} for row in range(1500)]
    raw = tmp_path / "a.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    version = local.register("web", raw)
    measure = RankTokens(path, pattern="cl100k")
    column = local.measure("web", pickle.loads(pickle.dumps(measure)))
    tokens = local.payload(version, column)
    for row, kept in zip(rows, tokens, strict=True):
        assert measure.encoding.decode(np.asarray(kept["tokens"]).tolist()) == row["text"]


def test_everything_that_changes_tokens_is_part_of_the_identity(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "a.tiktoken")
    other = write_ranks(tmp_path / "b.tiktoken", WORDS[:-1])
    copy = write_ranks(tmp_path / "c.tiktoken")
    plain = RankTokens(path, pattern="gpt2").identity()
    assert RankTokens(copy, pattern="gpt2").identity() == plain
    # One pattern under two names, or written out, is one pattern.
    assert RankTokens(path, pattern="r50k").identity() == plain
    assert RankTokens(path, pattern=PATTERNS["gpt2"]).identity() == plain
    changed = [
        RankTokens(other, pattern="gpt2"),
        RankTokens(path, pattern="o200k"),
        RankTokens(path, pattern="gpt2", special_tokens={"<a>": 500}),
        RankTokens(path, pattern="gpt2", field="body"),
        RankTokens(path, pattern="gpt2", specials=SpecialUse(in_text="token")),
    ]
    identities = [json.dumps(measure.identity()) for measure in changed]
    assert len({json.dumps(plain), *identities}) == 6
    assert "tiktoken 0" in plain["library"]


def test_patterns_are_those_of_the_library() -> None:
    """Method: the source text of the library's definitions, which cannot be called without downloading ranks."""
    import tiktoken_ext.openai_public as published

    patterns = re.findall(r'r"""(.*?)""",', inspect.getsource(published))
    assert PATTERNS["gpt2"] == published.r50k_pat_str
    assert PATTERNS["cl100k"] == patterns[0]
    assert PATTERNS["o200k"] == "|".join(patterns[1:8])


BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "no base64": ("!!! 0\n", {}, "line 1 .* base64|line 1"),
    "no rank": ("dGhl\n", {}, "line 1"),
    "rank that is text": ("dGhl x\n", {}, "line 1"),
    "not all bytes": ("dGhl 0\n", {}, "no rank for byte 0"),
    "rank twice": ("dGhl 0\nAA== 0\n", {}, "twice"),
    "pattern that is none": ("", {"pattern": "(("}, "must be a regular expression"),
    "number of a special token that is taken": ("", {"special_tokens": {"<a>": 5}}, "rank 5"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_files_that_hold_no_ranks_are_said(tmp_path: Path, what: str) -> None:
    content, more, reason = BROKEN[what]
    path = write_ranks(tmp_path / "broken.tiktoken")
    if content:
        path.write_text(content)
    with pytest.raises(errors.UsageError, match=reason):
        RankTokens(path, **({"pattern": "gpt2"} | more)).payloads  # noqa: B018


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    measure = RankTokens(write_ranks(tmp_path / "a.tiktoken"), pattern="gpt2")
    with pytest.raises(NothingToMeasure, match="'text' is int"):
        measure.read({"text": 5})
    with pytest.raises(NothingToMeasure, match="cannot encode"):
        measure.read({"text": "\ud800"})
    with pytest.raises(errors.UsageError, match="cannot read ranks"):
        RankTokens(tmp_path / "absent.tiktoken", pattern="gpt2")
