"""The line of the program that stacks show: the innermost frame that is neither Python's own, nor of a package, nor ours."""

import re
from dataclasses import dataclass

from penstock.observe.steps import StackSample
from penstock.report.accounts.timeline import Times
from penstock.report.diagnosis.observation import Observation

_FRAME = re.compile(r"(?P<file>.+):(?P<line>\d+)(?: (?P<function>.*))?", re.DOTALL)
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d[^/]*/|^<|/penstock/(?:run|data|state|torch|observe)/"
)


#: Packages whose business is to bring batches; a folder of the program may have the same name.
_LOADER = re.compile(
    r"/(?:site|dist)-packages/(?:torch/utils/data|torchdata|webdataset|streaming|grain|datasets|litdata)/"
)


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """What stacks show: ``at train.py:41 …`` or nothing, how many of them do, and whether most of those were inside of a package that loads data."""

    place: str
    evidence: str
    is_loading: bool = False


def line_of(
    observation: Observation,
    steps: Times,
    rank: int | None = None,
    *,
    part: str | None = None,
    is_spread: bool = False,
) -> ProgramLine:
    """The line that most stacks of some steps show, in a part or anywhere.

    Slow steps are looked at more often than others. What is spread over all steps is judged by the ordinary looks, or they would speak for it.
    """
    wanted = set(steps.tolist())
    samples = [
        sample
        for sample in observation.stacks
        if sample.step in wanted
        and sample.frames
        and rank in (None, sample.rank)
        and (part is None or sample.part in ("", part))
    ]
    if is_spread:
        samples = [sample for sample in samples if not sample.is_slow] or samples
    if not samples:
        return ProgramLine("", "no stack was taken there")
    by_line: dict[str, list[StackSample]] = {}
    for sample in samples:
        by_line.setdefault(program_line(sample.frames, sample.source), []).append(sample)
    line = max(sorted(by_line), key=lambda one: len(by_line[one]))
    loading = sum(any(map(_LOADER.search, sample.frames)) for sample in by_line[line])
    return ProgramLine(
        f"at {line}", f"{len(by_line[line])} of {len(samples)} stacks", loading * 2 > len(by_line[line])
    )


def program_line(frames: tuple[str, ...], source: tuple[str, ...] = ()) -> str:
    """As in ``train.py:41 `time.sleep(1)```, or with the function where the source is not known. Of a stack without a line of the program the innermost frame."""
    place = next((place for place, frame in enumerate(frames) if not _LIBRARY.search(frame)), 0)
    parts = _FRAME.fullmatch(frames[place])
    if parts is None:
        return frames[place]
    text = (source[place] if place < len(source) else "") or parts["function"]
    return f"{parts['file'].rpartition('/')[2]}:{parts['line']}" + (f" `{text}`" if text else "")
