"""Text of data and of names, as a terminal may have it: what would steer the terminal is shown as an escape instead."""

import re

#: Control characters but tabs and line ends, those of eight bits, and marks that turn the direction of a whole line.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """The text with ``\\x1b`` and its like spelt out."""
    return _STEERING.sub(lambda mark: ascii(mark[0])[1:-1], text)
