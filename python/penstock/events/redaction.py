"""What must not be shown: secrets, in text that somebody looks at or keeps.

Three rules, the same as those of the agent's incident files (``crates/penstock-process/src/job/redaction.rs``): values of variables whose names
say so, words of a known shape, and what follows an option or a name that says so.
"""

import re
from collections.abc import Iterable, Mapping

from penstock.events.secret_names import SECRET_BYTES_MIN, SECRET_NAMES

HIDDEN = "[secret]"
#: Names that only look like it: numbers of tokens are no secrets.
_HARMLESS = re.compile(
    r"(?:MAX|NUM|N|PER|COUNT|PAD|EOS|BOS|UNK|MASK)_?TOKENS?|TOKENS|TOKENIZERS?|AUTHORS?(?:_|$)", re.IGNORECASE
)
_KNOWN_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
)
#: `://user:password@host`
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)([^/\s@]+)(@)")
#: `--api-key X`, `token=X`, `"password": "X"`, `Authorization: Bearer X`. Looked for from where a word begins, and so far behind the name only:
#: from every letter of a word of a hundred thousand it took minutes.
_NAMED = re.compile(
    r"((?<![\w.-])[\w.-]*(?:token|secret|passwo?r?d|passphrase|credential|(?:api|access|private|wandb|login)[_-]?key|authorization)[\w-]{0,64}"
    r"[\"']?(?:\s*[=:]\s*|\s+)(?:bearer\s+|basic\s+)?[\"']?)"
    r"([^\s\"',;&]{8,})",
    re.IGNORECASE,
)
#: wandb's keys are 40 hexadecimal digits and look like commits; only beside a word like key are they taken for one.
_HEX_KEY = re.compile(r"(\bkey\b[^\n]{0,20}?)\b([0-9a-f]{40})\b", re.IGNORECASE)
_SECRET_OPTION = re.compile(
    r"--?[\w.-]*(?:token|secret|passwo?r?d|passphrase|credential|(?:api|access|private)[_-]?key)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether a variable, field or option is called like a secret."""
    plain = name.upper().replace("-", "_")
    return any(word in _HARMLESS.sub("", plain) for word in SECRET_NAMES)


class Redaction:
    """Hides secrets of an environment, and what looks like one."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        secrets = {
            value: name
            for name, value in (environment or {}).items()
            if is_secret_name(name) and len(value.encode()) >= SECRET_BYTES_MIN
        }
        # A value may be part of another; the longer one is replaced first.
        self._values = sorted(secrets.items(), key=lambda item: -len(item[0]))

    def text(self, text: str) -> str:
        """The same without secrets."""
        for value, name in self._values:
            text = text.replace(value, f"[{name}]")
        text = _KNOWN_SHAPES.sub(HIDDEN, text)
        text = _IN_ADDRESS.sub(rf"\1{HIDDEN}\3", text)
        text = _NAMED.sub(_hidden, text)
        return _HEX_KEY.sub(rf"\1{HIDDEN}", text)

    def command(self, words: Iterable[str]) -> list[str]:
        """The same command; what follows ``--token`` and its like is hidden whatever it looks like."""
        shown: list[str] = []
        hide = False
        for word in words:
            name, equals, _ = word.partition("=")
            if hide and not word.startswith("-"):
                shown.append(HIDDEN)
                hide = False
            elif _SECRET_OPTION.fullmatch(name) and is_secret_name(name.lstrip("-")):
                shown.append(f"{name}={HIDDEN}" if equals else word)
                hide = not equals
            else:
                shown.append(self.text(word))
                hide = False
        return shown

    def document(self, value: object, name: str = "") -> object:
        """The same JSON document; also fields whose names say that they are secrets."""
        if isinstance(value, str):
            return HIDDEN if value and is_secret_name(name) else self.text(value)
        if isinstance(value, dict):
            return {key: self.document(item, str(key)) for key, item in value.items()}
        if isinstance(value, list):
            words = name in ("command", "argv") and all(isinstance(word, str) for word in value)
            return self.command(value) if words else [self.document(item, name) for item in value]
        return value


def _hidden(match: "re.Match[str]") -> str:
    return match[0] if _is_harmless(match[1], match[2]) else match[1] + HIDDEN


def _is_harmless(name: str, value: str) -> bool:
    """`num_tokens: 123456789` and `the secret of something` are no secrets; already hidden ones stay as they are."""
    if value.startswith("["):
        return True
    if not is_secret_name(name) or value.replace(".", "").isdigit():
        return True
    return not re.search(r"[=:]", name) and not name.lstrip().startswith("-") and not re.search(r"\d", value)
