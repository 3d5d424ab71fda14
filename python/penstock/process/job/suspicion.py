"""Whether a description of a job may hold a secret: a quick look, before rules are loaded that take longer than the look.

Most jobs hold none, and starting one must not cost what hiding secrets costs. The look may be wrong in one direction only: whatever
``penstock.events.redaction`` would hide is suspected here.
"""

from collections.abc import Iterable, Mapping

from penstock.events.secret_names import SECRET_BYTES_MIN, SECRET_NAMES

#: In small letters: parts of names that say so, and beginnings of words of known shapes.
_TRACES = (
    "token",
    "secret",
    "pass",
    "credential",
    "key",
    "auth",
    "://",
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "akia",
    "asia",
    "aiza",
    "eyj",
)


def may_hold_secret(texts: Iterable[str], environment: Mapping[str, str]) -> bool:
    """Whether some of the texts looks like one, or holds the value of a variable that is called like one."""
    whole = "\n".join(texts)
    small = whole.lower()
    if any(trace in small for trace in _TRACES):
        return True
    return any(
        len(value) >= SECRET_BYTES_MIN // 4 and value in whole
        for name, value in environment.items()
        if any(word in name.upper().replace("-", "_") for word in SECRET_NAMES)
    )
