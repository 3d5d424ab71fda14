"""Small tokenizers built as those of well-known models are: the same models, normalizers, pre-tokenizers and added tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
PLAIN_ADDED = ["<think>", "</think>"]
TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "Numbers 123 45678 and words; naïve 日本語 😀\n\nnew line\tand tabs   spaces",
    "<|im_end|> </s> [SEP] is written in text < | > s im end start",
]
_GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _byte_level(path: Path, *, normalizer: Any = None, pattern: str = "", **model: Any) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)
    split = pre_tokenizers.Split(Regex(pattern), "isolated") if pattern else None
    tokenizer.pre_tokenizer = level if split is None else pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS * 5, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in PLAIN_ADDED])
    tokenizer.save(str(path))


def gpt2(path: Path) -> None:
    """Bytes, with GPT-2's own pattern."""
    _byte_level(path)


def llama3(path: Path) -> None:
    """Bytes, a pattern of its own, and words that are tokens are not merged."""
    _byte_level(path, pattern=_GPT4, ignore_merges=True)


def qwen(path: Path) -> None:
    """Bytes after normalisation."""
    from tokenizers import normalizers

    _byte_level(path, pattern=_GPT4, normalizer=normalizers.NFC())


def _sentence_pieces(path: Path, *, normalizer: bool) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [*sorted(set("".join(TEXTS)) - {" "}), "th", "the", "▁the", "at", "▁s"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("a", "t"), ("▁", "s")]
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    if normalizer:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True, normalized=False) for word in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in PLAIN_ADDED])
    tokenizer.save(str(path))


def llama2(path: Path) -> None:
    """Pieces of sentences; the normalizer writes the spaces."""
    _sentence_pieces(path, normalizer=True)


def gemma(path: Path) -> None:
    """Pieces of sentences; the pre-tokenizer writes the spaces."""
    _sentence_pieces(path, normalizer=False)


def t5(path: Path) -> None:
    """A unigram model whose own pieces are the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(set("".join(TEXTS)) - {" "})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("at", -4.0)]
    tokenizer = Tokenizer(models.Unigram([*pieces, *((letter, -5.0) for letter in letters)], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True) for word in ("<pad>", "</s>", "<unk>", *SPECIAL)]
    )
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in PLAIN_ADDED])
    tokenizer.save(str(path))


def bert(path: Path) -> None:
    """Pieces of words, without case."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *SPECIAL]
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=[AddedToken(word, special=True) for word in words], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in PLAIN_ADDED])
    tokenizer.save(str(path))


KINDS: dict[str, Callable[[Path], None]] = {
    "gpt2": gpt2,
    "llama3": llama3,
    "qwen": qwen,
    "llama2": llama2,
    "gemma": gemma,
    "t5": t5,
    "bert": bert,
}
