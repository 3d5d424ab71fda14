"""Numbers as Prometheus reads them: families with help and type, labels with anything in them.

Names and kinds follow its conventions: units are part of names, counters end in ``_total``, quantiles belong to summaries.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One number."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """What samples of a name are."""

    kind: Literal["counter", "gauge", "summary"]
    help: str


def exposition(samples: Iterable[Sample], families: Mapping[str, Family]) -> str:
    """The text of all samples, those of a family together. A family that nobody described is told by its name."""
    texts: dict[str, list[str]] = {}
    for sample in samples:
        base = _base(sample.name, families)
        texts.setdefault(base, []).append(_line(sample))
    lines: list[str] = []
    for name, of_family in texts.items():
        family = families.get(name) or _by_name(name)
        lines += [f"# HELP {name} {_help(family.help)}", f"# TYPE {name} {family.kind}", *of_family]
    return "\n".join([*lines, ""])


def _base(name: str, families: Mapping[str, Family]) -> str:
    """Sum and count of a summary belong to it."""
    for ending in ("_sum", "_count"):
        base = name.removesuffix(ending)
        if base != name and base in families and families[base].kind == "summary":
            return base
    return name


def _by_name(name: str) -> Family:
    words = name.removeprefix("penstock_").replace("_", " ")
    if name.endswith("_total"):
        return Family("counter", f"{words.removesuffix(' total').capitalize()}.")
    return Family("gauge", f"{words.capitalize()}.")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _line(sample: Sample) -> str:
    inside = ",".join(f'{key}="{_escaped(label)}"' for key, label in sample.labels.items())
    return (
        f"{sample.name}{{{inside}}} {_number(sample.value)}"
        if inside
        else f"{sample.name} {_number(sample.value)}"
    )


def _escaped(label: str) -> str:
    """Half a surrogate, as in a name of a file that is no text, would make the whole answer unreadable."""
    if label.isalnum():
        return label
    readable = label.encode("utf-8", "backslashreplace").decode()
    return readable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
