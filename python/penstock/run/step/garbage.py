"""Python's garbage collector beside a device that waits for launches.

A full collection looks at every object of the process, most of which are modules that never die, and nothing is launched meanwhile: a fifth of a second
with PyTorch imported. What is alive when a life begins is therefore left out of later ones.
"""

import gc


class Frozen:
    """From ``freeze`` to ``thaw``."""

    def __init__(self) -> None:
        self._is_on = False

    def freeze(self) -> None:
        """Collect once, and leave what is alive out from now on."""
        gc.collect()
        gc.freeze()
        self._is_on = True

    def thaw(self) -> None:
        """As it was."""
        if self._is_on:
            gc.unfreeze()
            self._is_on = False
