"""What the README of a dataset of the Hugging Face Hub says about its files: configurations, and the splits of each.

The head of such a README is YAML between two lines of dashes, and ``configs`` in it names files by patterns. Only the form
that the Hub's own tools write is read (blocks of mappings, lists and plain texts); of any other nothing is known.
"""

import re
from dataclasses import dataclass
from typing import Any

from penstock.registry.selection.glob_pattern import GlobPattern

README = "README.md"
CARD_BYTES_MAX = 4 << 20
_DEPTH_MAX = 16
_KEY = re.compile(r"(?P<key>[\w-]+):(?:\s+(?P<value>.*))?")


@dataclass(frozen=True, slots=True)
class FilePattern:
    """Files of one split of one configuration."""

    config: str
    #: Empty if the card leaves splits to names.
    split: str
    pattern: str

    def matches(self, name: str) -> bool:
        """Whether a file, by its name below the README's folder, is one of them."""
        return GlobPattern(self.pattern.split("/")).matches(name)


def file_patterns(card: str) -> list[FilePattern]:
    """The patterns of a card, in its order; none if it has none, or is written in another form."""
    head = _head(card)
    try:
        configs, _ = _block(head, 0, 0) if head else (None, 0)
        return [] if configs is None else [pattern for config in configs for pattern in _patterns(config)]
    except (ValueError, TypeError, AttributeError, KeyError):
        return []


def _patterns(config: dict[str, Any]) -> list[FilePattern]:
    name = str(config["config_name"])
    folder = str(config.get("data_dir") or "").strip("/")
    data_files = config.get("data_files", "**")
    patterns = []
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, paths = (entry["split"], entry["path"]) if isinstance(entry, dict) else ("", entry)
        for path in paths if isinstance(paths, list) else [paths]:
            below = f"{folder}/{path}" if folder else path
            patterns.append(FilePattern(name, split, below.removeprefix("./")))
    return patterns


def _head(card: str) -> list[tuple[int, str]]:
    """The lines below ``configs:`` in the head of a card, each with its indent."""
    lines = card.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return []
    inside: list[tuple[int, str]] = []
    begun = False
    for line in lines[1:]:
        text = line.strip()
        if line.rstrip() == "---":
            return inside
        if not text or text.startswith("#"):
            continue
        if not begun:
            begun = line.rstrip() == "configs:"
        elif line[0] not in " -":
            return inside
        else:
            inside.append((len(line) - len(line.lstrip(" ")), text))
    return []


def _block(lines: list[tuple[int, str]], at: int, depth: int) -> tuple[Any, int]:
    """The value that begins at a line, and the line after it."""
    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    indent, text = lines[at]
    if text.startswith("- ") or text == "-":
        return _list(lines, at, indent, depth)
    if _KEY.fullmatch(text) is None:
        return _plain(text), at + 1
    return _mapping(lines, at, indent, depth)


def _list(lines: list[tuple[int, str]], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    items = []
    while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("-"):
        rest = lines[at][1][1:]
        inner = indent + 1 + len(rest) - len(rest.lstrip(" "))
        # What stands behind the dash is the first line of the entry.
        lines[at] = (inner, rest.strip())
        value, at = _block(lines, at, depth + 1)
        items.append(value)
    return items, at


def _mapping(lines: list[tuple[int, str]], at: int, indent: int, depth: int) -> tuple[dict[str, Any], int]:
    mapping: dict[str, Any] = {}
    while at < len(lines) and lines[at][0] == indent and (match := _KEY.fullmatch(lines[at][1])) is not None:
        at += 1
        if match["value"]:
            mapping[match["key"]] = _plain(match["value"])
        elif at < len(lines) and (
            lines[at][0] > indent or (lines[at][0] == indent and lines[at][1][0] == "-")
        ):
            mapping[match["key"]], at = _block(lines, at, depth + 1)
        else:
            mapping[match["key"]] = None
    return mapping, at


def _plain(text: str) -> str:
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0]:
            raise ValueError(f"{text} has no end")
        return text[1:-1]
    if text[0] in "[{&*!|>%@`":
        raise ValueError(f"{text} is of another form of YAML")
    return text.partition(" #")[0].rstrip()
