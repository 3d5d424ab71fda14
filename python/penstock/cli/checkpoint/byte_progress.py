"""Progress in bytes, with the speed beside it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cli.progress import progress


@contextmanager
def bytes_progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how many bytes are done of how many, and how fast."""
    began = time.monotonic()
    with progress(what, "bytes", quiet=quiet) as tell:

        def watch(done: int, total: int) -> None:
            tell(done, max(total, 1), gigabytes(done, time.monotonic() - began))

        yield watch


def gigabytes(bytes_: int, seconds: float) -> str:
    """A speed."""
    return f"{bytes_ / max(seconds, 1e-9) / 1e9:.2f} GB/s"
