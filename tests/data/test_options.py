"""Options of reading: what is refused says what is expected and what came."""

from typing import Any

import pytest

import penstock as ps
from penstock.data.feed.options import ReadOptions
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: ReadOptions(threads=-1), "threads: must be a whole number from 0 on, got -1"),
        (lambda: ReadOptions(stall_s=0), "stall_s: must be a positive number of seconds, got 0"),
        (lambda: ReadOptions(copies="x"), "copies: must be one of auto, always, never, got 'x'"),
        (lambda: ps.Lane(4, of=4), "lane: must be at least 0 and below 4, the number of lanes, got 4"),
        (
            lambda: ps.Service(address="penstock://a:1", limit_s=0),
            "limit_s: must be between 0 and 1,000,000 seconds",
        ),
        (
            lambda: ps.Recipe(sources=[ps.Source("a@1")], seed=1.5, batch=1),
            "seed: must be a whole number of 64 bits, got 1.5",
        ),
        (
            lambda: ps.Recipe(sources=[ps.Source("a@1")], shuffle="ful", batch=1),
            "shuffle: must be one of full, local, none",
        ),
    ],
)
def test_what_is_refused_says_what_is_expected_and_what_came(refused: Any, said: str) -> None:
    with pytest.raises(PenstockError) as raised:
        refused()
    assert said in str(raised.value)
