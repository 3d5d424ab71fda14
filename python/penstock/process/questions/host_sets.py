"""Names of hosts as one short text, as ClusterShell's ``nodeset -f`` folds them: ``gpu[01-03,07]``. Pure.

The other way is ``penstock.process.hosts.host_names.expand``. Names that differ in one number are folded together; a number with leading
zeros is another than one without, unless the width is the same.
"""

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"\d+")


def fold(names: Iterable[str]) -> str:
    """All names, each once."""
    return ",".join(folded(names))


def folded(names: Iterable[str]) -> list[str]:
    """The parts of that, such as ``gpu[01-03]`` and ``login``, in order."""
    by_pattern: dict[str, set[tuple[str, ...]]] = {}
    for name in names:
        pattern = _NUMBER.sub("%s", name.replace("%", "%%"))
        by_pattern.setdefault(pattern, set()).add(tuple(_NUMBER.findall(name)))
    parts: list[str] = []
    for pattern, numbers in sorted(by_pattern.items()):
        boxes = _boxes(numbers) if numbers != {()} else [()]
        parts += [pattern % tuple(map(_brackets, box)) for box in boxes]
    return parts


def _boxes(numbers: set[tuple[str, ...]]) -> list[tuple[tuple[str, ...], ...]]:
    """Tuples of numbers as few products of sets; those that differ in one place alone are put together, from the last place on."""
    boxes = [tuple((number,) for number in one) for one in sorted(numbers, key=_order)]
    merged: list[tuple[tuple[str, ...], ...]] = [*boxes]
    for place in reversed(range(len(boxes[0]))):
        merged = _merged_at(place, merged)
    return merged


def _merged_at(place: int, boxes: list[tuple[tuple[str, ...], ...]]) -> list[tuple[tuple[str, ...], ...]]:
    by_rest: dict[tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]], list[str]] = {}
    for box in boxes:
        by_rest.setdefault((box[:place], box[place + 1 :]), []).extend(box[place])
    return [(*before, tuple(sorted(values, key=_key)), *after) for (before, after), values in by_rest.items()]


def _key(number: str) -> tuple[int, str]:
    return len(number), number


def _order(one: tuple[str, ...]) -> list[tuple[int, str]]:
    return [_key(number) for number in one]


def _brackets(numbers: tuple[str, ...]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1 and _same_width(runs[-1][-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"[{','.join(run[0] if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"


def _same_width(one: str, two: str) -> bool:
    """Whether two numbers may stand in one range: 9 and 10 do, 09 and 10 do, 9 and 010 do not."""
    return len(one) == len(two) or not (one.startswith("0") or two.startswith("0"))
