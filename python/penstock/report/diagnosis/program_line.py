"""The line of the program that stacks show: the innermost frame that is neither Python's own, nor of a package, nor ours."""

import re
from collections import Counter

from penstock.report.accounts.timeline import Times
from penstock.report.diagnosis.observation import Observation

_FRAME = re.compile(r"(?P<file>.+):(?P<line>\d+)(?: (?P<function>.*))?", re.DOTALL)
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d[^/]*/|^<|/penstock/(?:run|data|state|torch|observe)/"
)


def line_of(observation: Observation, steps: Times, rank: int | None = None) -> tuple[str, str]:
    """The line that most stacks of some steps show, and how many do."""
    wanted = set(steps.tolist())
    lines = [
        program_line(sample.frames, sample.source)
        for sample in observation.stacks
        if sample.step in wanted and sample.frames and rank in (None, sample.rank)
    ]
    if not lines:
        return "", "no stack was taken there"
    counts = Counter(lines)
    line = max(sorted(counts), key=lambda one: counts[one])
    return f"at {line}", f"{counts[line]} of {len(lines)} stacks"


def program_line(frames: tuple[str, ...], source: tuple[str, ...] = ()) -> str:
    """As in ``train.py:41 `time.sleep(1)```, or with the function where the source is not known. Of a stack without a line of the program the innermost frame."""
    place = next((place for place, frame in enumerate(frames) if not _LIBRARY.search(frame)), 0)
    parts = _FRAME.fullmatch(frames[place])
    if parts is None:
        return frames[place]
    text = (source[place] if place < len(source) else "") or parts["function"]
    return f"{parts['file'].rpartition('/')[2]}:{parts['line']}" + (f" `{text}`" if text else "")
