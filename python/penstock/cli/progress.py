"""Progress on stderr: a bar on a terminal, plain lines now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_LINE_EVERY_S = 5.0


class Tell(Protocol):
    """Told how much is done of how much, and a few words beside it."""

    def __call__(self, done: float, total: float, words: str = "") -> None: ...


@contextmanager
def progress(what: str, unit: str, *, quiet: bool = False) -> Iterator[Tell]:
    """Show progress while a block runs. ``unit`` is ``bytes`` or ``rows``."""
    if quiet:
        yield lambda done, total, words="": None
    elif sys.stderr.isatty():
        with _bar(what, unit) as tell:
            yield tell
    else:
        yield _lines(what, unit)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        *counts,
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    ]
    # Data goes above the bar where both are on the terminal; into a pipe or a file it goes as ever.
    above = sys.stdout.isatty()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=above) as shown:
        task = shown.add_task(what, total=None, words="")
        yield lambda done, total, words="": shown.update(task, completed=done, total=total, words=words)


def _lines(what: str, unit: str) -> Tell:
    begun = last = time.monotonic()

    def tell(done: float, total: float, words: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_EVERY_S:
            last = now
            left_s = (now - begun) * (total - done) / done if done else 0.0
            print(
                f"{what}: {done / total:.0%} of {total:,.0f} {unit}, {left_s:.0f} s left {words}".rstrip(),
                file=sys.stderr,
            )

    return tell
