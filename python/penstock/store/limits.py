"""How long, how often and how much a client of a store may: every limit, with its default and its variable.

A limit is set for a process by a variable of the environment, ``PENSTOCK_STORE_`` and the name in capitals
(``PENSTOCK_STORE_TOTAL_S=30``), or for one store by the caller.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from penstock.errors import UsageError

PREFIX = "PENSTOCK_STORE_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of the clients of stores; all of them together bound what one call can take."""

    #: Longest time until a connection stands.
    connect_s: float = 5.0
    #: Longest time without a byte, before the answer and inside of it.
    read_s: float = 20.0
    #: Longest time of one part of a call, with all tries and pauses.
    total_s: float = 120.0
    #: How often a request is made at most, the first time included.
    tries: int = 8
    #: The first pause is drawn between nothing and this; the bound doubles with every try.
    pause_s: float = 0.1
    #: The bound of pauses, unless the store asks for longer ones.
    pause_max_s: float = 10.0
    #: Retries that all calls together may make at once; after that they wait for each other.
    retry_burst: int = 64
    #: Retries per second after that, on average. Every ten successes earn one more.
    retry_rate: float = 8.0
    #: Share of reads that may be asked for a second time because they are slower than 99 of 100; 0 for never.
    hedge_share: float = 0.05
    #: Reads of about the same length that are seen before it is known what slow is.
    hedge_samples: int = 100
    #: Requests under way at once.
    requests_max: int = 32
    #: Requests per second, if limited.
    request_rate: float | None = None
    #: Bytes per second, if limited.
    byte_rate: float | None = None
    #: Larger reads and writes are cut into parts of this length.
    part_bytes: int = 8 << 20

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Limits":
        """The defaults, and what variables say instead."""
        said: dict[str, Any] = {}
        for field in fields(cls):
            variable = PREFIX + field.name.upper()
            if (text := environment.get(variable)) is None:
                continue
            kind = int if field.type is int else float
            try:
                said[field.name] = kind(text)
            except ValueError as reason:
                raise UsageError(f"{variable} has to be a number, not {text!r}") from reason
        return cls(**said)

    def as_dict(self) -> dict[str, Any]:
        """By name, as the Rust side takes them."""
        return asdict(self)
