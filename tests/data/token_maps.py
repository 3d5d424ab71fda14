"""Functions that tests use as random maps of tokens; they stand in a module, as maps must."""

from typing import Any

import numpy as np

Tokens = np.ndarray[Any, Any]


def same(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Changes nothing."""
    return tokens


def rolled(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Turns the tokens round, by any number of places."""
    return np.roll(tokens, draws.integers(len(tokens))) if len(tokens) else tokens


def noisy(tokens: Tokens, draws: np.random.Generator) -> list[int]:
    """Writes 999 over every fourth token or so, in place, and gives a list."""
    tokens[draws.random(len(tokens)) < 0.25] = 999
    return [int(token) for token in tokens]


def thinned(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Leaves about half of the tokens out, and of what is left at most 24."""
    return tokens[draws.random(len(tokens)) < 0.5][:24]


def beheaded(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Leaves the first token out, which is a mistake without a length_max."""
    return tokens[1:]


def huge(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Numbers that are no tokens."""
    return tokens.astype(np.int64) - 1000


def halves(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Numbers that are not whole."""
    return tokens / 2


def picky(tokens: Tokens, draws: np.random.Generator) -> Tokens:
    """Fails on samples whose first token ends in 3."""
    if len(tokens) and tokens[0] % 10 == 3:
        raise KeyError(int(tokens[0]))
    return tokens + np.uint16(0)
