"""The configuration of a run as flat fields: what its description, its newest start and its command line say, for lists that are filtered and grouped."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal

#: Of one run; a recipe of a thousand sources is no reason for a thousand columns.
FIELDS_MAX = 80
_VALUE_LENGTH = 120
_DEPTH_MAX = 3
#: Of a start: what was chosen, and not what differs between any two lives.
_CHOSEN = ("ranks", "launcher", "host", "program", "policy")
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def run_fields(run: str | os.PathLike[str]) -> dict[str, str]:
    """Names such as ``seed``, ``recipe.batch``, ``policy.save_every`` and ``option.lr``; what cannot be read has none."""
    fields: dict[str, str] = {}
    for name, value in _facts(run):
        if len(fields) < FIELDS_MAX:
            fields.setdefault(name, value)
    return fields


def _facts(run: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    try:
        about = RunDirectory(run).about()
        yield "seed", str(about.seed)
        yield "deterministic", _word(about.deterministic)
        entries = journal.read(run)
    except PenstockError:
        return
    start = next((entry.facts for entry in reversed(entries) if entry.kind == "start"), {})
    command = start.get("command")
    if isinstance(command, list):
        yield from _options([word for word in command if isinstance(word, str)])
    for name in _CHOSEN:
        yield from _flat(name, start.get(name), 0)
    yield from _flat("recipe", about.recipe, 0)


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What was given to the program as ``--name value`` or ``--name=value``; options before its file are Python's own."""
    script = next((place for place, word in enumerate(command) if place and not word.startswith("-")), None)
    words = command[script + 1 :] if script is not None else ()
    for place, word in enumerate(words):
        option = _OPTION.fullmatch(word)
        if option is None:
            continue
        following = words[place + 1] if place + 1 < len(words) else ""
        value = option[2] if option[2] is not None else "" if _OPTION.fullmatch(following) else following
        yield f"option.{option[1][:_VALUE_LENGTH]}", _word(value or True)


def _flat(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Leaves by their path; lists of plain values are one value."""
    if isinstance(value, dict) and depth < _DEPTH_MAX:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}"[:_VALUE_LENGTH], inner, depth + 1)
    elif isinstance(value, list) and depth < _DEPTH_MAX and any(isinstance(item, dict) for item in value):
        for place, item in enumerate(value):
            yield from _flat(f"{name}.{place}", item, depth + 1)
    elif isinstance(value, list):
        yield name, ", ".join(map(_word, value))[:_VALUE_LENGTH]
    elif value is not None and not isinstance(value, dict):
        yield name, _word(value)


def _word(value: object) -> str:
    return (str(value).lower() if isinstance(value, bool) else str(value))[:_VALUE_LENGTH]
