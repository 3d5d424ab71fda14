"""Where the chat template of a tokenizer is, and the words (special tokens) that it uses.

A template is given as text or as a file. Otherwise it is looked for where Hugging Face tokenizers keep it: in
``chat_template.jinja`` beside the ``tokenizer.json``, or in ``tokenizer_config.json``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import UsageError

CONFIGURATION = "tokenizer_config.json"
#: Where older tokenizers say which special tokens are which, when their configuration does not.
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
BESIDE = "chat_template.jinja"
_WORDS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template."""

    text: str
    #: Special tokens by the names that templates use, such as ``eos_token``.
    words: dict[str, str]


def is_template(text: str) -> bool:
    """Whether a text is a template itself, and not the path of one."""
    return "{{" in text or "{%" in text or "\n" in text


def find_template(tokenizer: Path, template: str = "") -> Template:
    """The template that was given, or the one beside the tokenizer."""
    configuration = read_configuration(tokenizer.parent / CONFIGURATION)
    by_name = read_configuration(tokenizer.parent / SPECIAL_TOKENS_MAP)
    words = {
        name: word
        for name in _WORDS
        if (word := word_of(configuration.get(name)) or word_of(by_name.get(name)))
    }
    if not isinstance(template, str):
        raise UsageError(f"{template!r:.100} is neither a template nor the path of one")
    if is_template(template):
        return Template(template, words)
    beside = tokenizer.parent / BESIDE
    if template or beside.is_file():
        return Template(_read(Path(template) if template else beside), words)
    text = configuration.get("chat_template")
    if isinstance(text, list):
        text = next((entry.get("template") for entry in text if entry.get("name") == "default"), None)
    if not isinstance(text, str):
        hint = "give template=, as text or as a path"
        raise UsageError(
            f"no chat template beside {tokenizer}: expected {BESIDE}, or one in {CONFIGURATION}",
            hint=hint,
        )
    return Template(text, words)


def _read(path: Path) -> str:
    try:
        # Whatever the locale says: templates are UTF-8, and many spell their tokens with characters beyond ASCII.
        return path.read_text(encoding="utf-8")
    except OSError as reason:
        hint = "a template is a path, or a text with {{ or {% in it"
        raise UsageError(f"cannot read template {path}: {reason.strerror}", hint=hint) from reason
    except ValueError as reason:
        # No UTF-8, or a path that has a zero byte in it.
        raise UsageError(f"template {str(path)!r} must be text: {reason}") from reason


def read_configuration(path: Path) -> dict[str, Any]:
    """A file of settings beside a tokenizer; empty where there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except OSError as reason:
        raise UsageError(f"cannot read {path}: {reason.strerror}") from reason
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise UsageError(f"{path} must be JSON: {reason}") from reason


def word_of(token: Any) -> str:
    """A special token, which is a text or a table with its text under ``content``."""
    word = token.get("content") if isinstance(token, dict) else token
    return word if isinstance(word, str) else ""
