"""The one filter between what programs wrote and the terminal of a person.

A terminal obeys what it is sent: sequences in a log line may clear the screen, write to the clipboard or pretend to be somebody else's
line. Text of data and names is shown with such characters spelt out, text that programs said without their colours, and whole logs with
nothing but colours left, as the live console of a job has them (``crates/penstock-process/src/logs/console/width.rs``). What goes into a pipe
or a file is not for a terminal and stays as it is.
"""

import re

#: Control characters but tabs and line ends, those of eight bits, and marks that turn the direction of a whole line.
_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
_DIRECTION = r"\u202a-\u202e\u2066-\u2069"
_STEERING = re.compile(f"[{_CONTROL}{_DIRECTION}]")
_COLOUR = r"\x1b\[[\d;:]*m"
_COLOURS = re.compile(_COLOUR)
#: Sequences as ``width.rs`` knows them: those in brackets, strings up to a bell or to an escape with its backslash, and all others; then
#: single characters. Bytes that are no text (decoded with ``surrogateescape``) may be controls of eight bits as well.
_MOVES = re.compile(
    rf"({_COLOUR})"
    r"|\x1b\[[\x20-\x3f]{0,64}[\x40-\x7e]?"
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\?)?"
    r"|\x1b[^\n\x1b]?"
    rf"|[{_CONTROL}{_DIRECTION}\udc80-\udc9f]"
)


def harmless(text: str) -> str:
    """The text with ``\\x1b`` and its like spelt out."""
    return _STEERING.sub(lambda mark: ascii(mark[0])[1:-1], text)


def said(text: str) -> str:
    """What a program said, for a place where its colours would only be in the way."""
    return harmless(_COLOURS.sub("", text))


def unsteering(document: str) -> str:
    """A JSON document, with what JSON lets stand escaped as well: it can stand only in strings."""
    return _STEERING.sub(lambda mark: f"\\u{ord(mark[0]):04x}", document)


def coloured(output: bytes) -> bytes:
    """Output of programs for a terminal: colours stay, everything else that would steer it is left out.

    A carriage return stays, too: it goes to the beginning of a line that is the program's own.
    """
    text = output.decode("utf-8", "surrogateescape")
    parts = [_MOVES.sub(_kept, part) for part in text.split("\r")]
    return "\r".join(parts).encode("utf-8", "surrogateescape")


def _kept(mark: "re.Match[str]") -> str:
    return mark[1] or ""
