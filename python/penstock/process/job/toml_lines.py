"""Where in a TOML file a key stands; the reader of the standard library does not say.

Only headers and the beginnings of lines are looked at. That finds every key that has a line of its own; a key inside an inline table
has the line of its table. It is for messages, never for values.
"""

import re

_HEADER = re.compile(r"^\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


class Places:
    """Lines of keys, by dotted path."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        table: list[str] = []
        for number, line in enumerate(text.splitlines(), start=1):
            if header := _HEADER.match(line):
                table = _parts(header[1])
                self._lines.setdefault(".".join(table), number)
            elif key := _KEY.match(line):
                self._lines.setdefault(".".join([*table, *_parts(key[1])]), number)

    def line(self, path: str) -> int | None:
        """The line of a key, else of the first below it, else of what it is in, else nothing."""
        while path:
            if path in self._lines:
                return self._lines[path]
            below = [line for known, line in self._lines.items() if known.startswith(f"{path}.")]
            if below:
                return min(below)
            path = path.rpartition(".")[0]
        return None


def _parts(text: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(text)]
