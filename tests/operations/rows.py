"""Which row of the table in docs/operations.md a test stands for."""

from collections.abc import Callable
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., object])


def row(fault: str) -> Callable[[Test], Test]:
    """Marks a test with the first cell of its row."""
    return pytest.mark.operations(fault)
