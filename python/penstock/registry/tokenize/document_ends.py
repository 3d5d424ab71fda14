"""Which token begins and which ends a document, as a tokenizer's configuration says it: the meaning of ``"auto"``.

Looked for in the files that Hugging Face saves beside a tokenizer (``tokenizer_config.json``, ``special_tokens_map.json``,
``generation_config.json``, ``config.json``), and then in what the tokenizer itself adds to a text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.registry.tokenize.special_tokens import TokenizerFile, named_token
from penstock.registry.tokenize.template import (
    CONFIGURATION,
    SPECIAL_TOKENS_MAP,
    read_configuration,
    word_of,
)

AUTO = "auto"
_NAMED_IN = (CONFIGURATION, SPECIAL_TOKENS_MAP)
_NUMBERED_IN = ("generation_config.json", "config.json")


def token_of(which: str, token: Any, file: TokenizerFile) -> int | None:
    """The number of the token that begins (``bos``) or ends (``eos``) documents under a ``tokenizer.json``."""
    if token is None:
        return None
    chosen = token if token != AUTO else _configured(which, file.path)
    if chosen is None:
        chosen = _processed(which, file.post_processor)
    if chosen is None:
        raise _unnamed(which, file.path)
    known = file.special_tokens
    needs_all = not (isinstance(chosen, str) and chosen in known)
    return named_token(which, chosen, known, file.load() if needs_all else None)


def ranked_token_of(which: str, token: Any, ranks: Path, known: Mapping[str, int]) -> int | None:
    """The same for a file of ranks, whose special tokens are declared beside it."""
    if token is None:
        return None
    chosen = token if token != AUTO else _configured(which, ranks)
    if chosen is None:
        raise _unnamed(which, ranks)
    return named_token(which, chosen, known)


def _unnamed(which: str, path: Path) -> UsageError:
    return UsageError(
        f"{which}: nothing beside {path} says which token that is", hint=f'name it: {which} = "<|endoftext|>"'
    )


def _configured(which: str, path: Path) -> str | int | None:
    for name in _NAMED_IN:
        if word := word_of(read_configuration(path.parent / name).get(f"{which}_token")):
            return word
    for name in _NUMBERED_IN:
        token_id = read_configuration(path.parent / name).get(f"{which}_token_id")
        number = token_id[0] if isinstance(token_id, list) and token_id else token_id
        if type(number) is int:
            return number
    return None


def _processed(which: str, processor: Mapping[str, Any]) -> str | None:
    """What a tokenizer puts first or last when it adds special tokens."""
    for part in processor.get("processors") or ():
        if token := _processed(which, part):
            return token
    pair = processor.get("cls" if which == "bos" else "sep")
    if isinstance(pair, list) and pair:
        return str(pair[0])
    single = processor.get("single")
    if not isinstance(single, list) or not single:
        return None
    outer = single[0 if which == "bos" else -1]
    return outer["SpecialToken"]["id"] if isinstance(outer, dict) and "SpecialToken" in outer else None
