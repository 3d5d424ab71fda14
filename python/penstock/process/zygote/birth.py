"""What a rank knows when it begins."""

from __future__ import annotations

from typing import Any


class Birth:
    """A request of the agent, one worker's own part of it, and the worker's descriptors."""

    def __init__(
        self, request: dict[str, Any], worker: dict[str, Any], fds: dict[str, int], first: dict[str, Any]
    ) -> None:
        self.request = request
        self.worker = worker
        #: By name: the ``gate``, and those that ``files`` of the worker names.
        self.fds = fds
        #: What the agent said first, with the numbers of the descriptors that were open before us as ``kept``.
        self.first = first
