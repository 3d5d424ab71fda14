"""Trees that a failed load has filled in part: what they hold is no state of any step, and is never saved.

A later load of the same names makes such a tree whole again. Whoever gives up on loading has to make the tree anew.
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from penstock.errors import TreeSpoiled

#: Trees that are remembered. They are held, so a tree that is made later is never mistaken for one of them.
_REMEMBERED_MAX = 8


@dataclass(frozen=True, slots=True)
class _Spoiled:
    tree: Any
    step: int
    reason: str
    only: tuple[str, ...]


_LOCK = threading.Lock()
_SPOILED: deque[_Spoiled] = deque(maxlen=_REMEMBERED_MAX)


def spoil(tree: Any, step: int, only: tuple[str, ...], reason: BaseException) -> None:
    """A load of a step failed after it had begun to write; ``only`` are the names that it was about, all if there are none."""
    with _LOCK:
        _SPOILED.append(_Spoiled(tree, step, str(reason) or type(reason).__name__, only))


def heal(tree: Any, only: tuple[str, ...]) -> None:
    """A load succeeded: what it was about is whole."""
    with _LOCK:
        left = [
            entry for entry in _SPOILED if entry.tree is not tree or (only and set(only) != set(entry.only))
        ]
        _SPOILED.clear()
        _SPOILED.extend(left)


def check_whole(tree: Any) -> None:
    """Raise ``TreeSpoiled`` for a tree that is filled in part."""
    with _LOCK:
        spoiled = next((entry for entry in reversed(_SPOILED) if entry.tree is tree), None)
    if spoiled is not None:
        raise TreeSpoiled(step=spoiled.step, reason=spoiled.reason)
