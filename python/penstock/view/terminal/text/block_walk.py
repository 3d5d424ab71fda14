"""Walking over blocks of lines of which only some have been laid out: a place is a block and a line of it.

Nothing here depends on how many blocks there are: a step of a page costs the blocks that it crosses, at row 0 as at row 1,000,000,000.
"""

from collections.abc import Callable
from typing import TypeAlias

#: A block, and a line of it.
Position: TypeAlias = tuple[int, int]
#: How many lines a block has; at least one.
Height: TypeAlias = Callable[[int], int]


def moved(at: Position, lines: int, *, blocks: int, height: Height) -> Position:
    """The place some lines further down (or up), or the end (or the beginning) where there are fewer."""
    block, line = at
    line += lines
    while line < 0 and block > 0:
        block -= 1
        line += height(block)
    while block < blocks - 1 and line >= (tall := height(block)):
        line -= tall
        block += 1
    return block, max(0, min(line, height(block) - 1)) if blocks else 0


def between(start: Position, stop: Position, *, limit: int, height: Height) -> int:
    """How many lines one place lies below another: at most ``limit``, and -1 when it lies above."""
    if stop < start:
        return -1
    count, block = -start[1], start[0]
    while block < stop[0] and count < limit:
        count += height(block)
        block += 1
    return min(limit, count + stop[1]) if block == stop[0] else limit


def last_top(*, blocks: int, screen: int, height: Height) -> Position:
    """The lowest place at the top of a screen that still fills it."""
    if not blocks:
        return 0, 0
    end = (blocks - 1, height(blocks - 1) - 1)
    return moved(end, 1 - screen, blocks=blocks, height=height)


def thumb(top: Position, *, blocks: int, screen: int, height: Height) -> tuple[int, int]:
    """First cell and length of a scaled scrollbar's thumb; length 0 when everything is seen."""
    if not blocks or screen < 2:
        return 0, 0
    low = last_top(blocks=blocks, screen=screen, height=height)
    if low == (0, 0):
        return 0, 0
    lowest = low[0] + low[1] / height(low[0])
    begun = (top[0] + top[1] / height(top[0])) / lowest
    # As many blocks are seen as the last screen has.
    size = min(screen - 1, max(1, round(screen * (blocks - lowest) / blocks)))
    return round(min(1.0, begun) * (screen - size)), size
