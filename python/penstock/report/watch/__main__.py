"""``python -m penstock.report.watch``: a watcher that a job or a rank starts for itself; people use ``penstock runs watch``."""

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    """Guard a watcher, or be one."""
    parser = argparse.ArgumentParser(prog="python -m penstock.report.watch", add_help=False)
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--guarded-by", type=int)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--job", type=Path)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--serve")
    parser.add_argument("--until", type=int)
    asked = parser.parse_args()
    words = _words(asked)
    if asked.guard:
        from penstock.report.watch.guard import guard

        return guard(words, asked.until)
    return _watch(asked, words)


def _words(asked: argparse.Namespace) -> list[str]:
    words: list[str] = []
    for name in ("run", "job", "beside", "serve", "until"):
        if (value := getattr(asked, name)) is not None:
            words += [f"--{name}", str(value)]
    return words


def _watch(asked: argparse.Namespace, words: list[str]) -> int:
    from penstock.report.watch.guard import become_guard
    from penstock.report.watch.watcher import Watcher, job_runs, watch

    guard = None
    if asked.guarded_by is not None:
        try:
            guard = os.pidfd_open(asked.guarded_by)
        except ProcessLookupError:
            become_guard(words)
    run, job = asked.run, asked.job
    watcher = Watcher(
        runs=(lambda: [run]) if run is not None else (lambda: job_runs(job)),
        serve=asked.serve,
        beside=asked.beside,
    )
    watch(watcher, [] if guard is None else [guard], None if job is None else lambda: _is_over(job))
    if guard is not None and _has_ended(guard):
        become_guard(words)
    return 0


def _has_ended(process: int) -> bool:
    import select

    return bool(select.select([process], [], [], 0)[0])


def _is_over(job: Path) -> bool:
    from penstock.process.job.catalogue import FINAL, Job

    # A job that was removed is over too; one that has not begun yet says nothing.
    return not job.is_dir() or Job(job).phase() in {*FINAL, "lost"}


if __name__ == "__main__":
    sys.exit(main())
