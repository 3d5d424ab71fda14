"""A run that is looked at again and again: computed anew when it has written something, and never for more than a share of a core."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from penstock.report.curves.run_screen import RunScreen, run_screen, signature_of

#: So many times as long as the last computation took, the next one waits: one part in twenty of a core at most.
REST_TIMES = 19


class LiveScreen:
    """The newest screen of one run. A look costs names and times of files, unless the run has written and the pause is over."""

    def __init__(
        self,
        run: str | os.PathLike[str],
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[Path], RunScreen] = run_screen,
    ) -> None:
        self.path = Path(run)
        self._clock, self._read = clock, read
        self._screen: RunScreen | None = None
        #: When the next computation may begin.
        self._rested = 0.0

    def look(self, *, at_once: bool = False) -> RunScreen:
        """What is known now; as old as the pause where the run is large, unless it is wanted at once."""
        is_rested = at_once or self._clock() >= self._rested
        if self._screen is None or (is_rested and self._screen.signature != signature_of(self.path)):
            began = self._clock()
            self._screen = self._read(self.path)
            self.spend(self._clock() - began)
        return self._screen

    def spend(self, seconds: float) -> None:
        """Count work that the last look brought along, such as drawing it: the pause is longer for it."""
        self._rested = max(self._rested, self._clock()) + REST_TIMES * seconds
