"""Commit and quarantine: the records that say of a checkpoint that it exists, and that it is damaged.

A commit is put at the first free number by somebody who has read everything before. So it sees every fence that was
put before it (S2), every checkpoint that was committed since the state was loaded, and every retire: files that it wants to use
again are used only if a good checkpoint that still exists names them at that very number of the log.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite

import msgspec

from penstock.errors import CheckpointDamaged, CommitsUnseen
from penstock.state.log.history import Committed, History
from penstock.state.log.incarnation import check_newest
from penstock.state.log.log import Log
from penstock.state.log.records import Commit, Quarantine
from penstock.state.log.references import References, is_ours


@dataclass(frozen=True, slots=True)
class Gone:
    """The commit was not made: these files belong to no good checkpoint any more, and have to be written again."""

    files: frozenset[str]


def commit(
    log: Log,
    new_commit: Commit,
    *,
    borrowed: Collection[str],
    references: References,
    seen: int | None = None,
) -> Committed | Gone:
    """Let a checkpoint exist, or say which files it cannot refer to.

    ``borrowed`` are the files that its manifest names and that this save did not write. ``seen`` is the length of the history
    from which the state was loaded; None for a state that was loaded from nowhere. Asking again for the same incarnation, step
    and attempt gives the commit that stands already, so a lost answer does no harm.
    """
    new_commit = msgspec.structs.replace(
        new_commit, metrics={k: v for k, v in new_commit.metrics.items() if isfinite(v)}
    )
    wanted = frozenset(name for name in borrowed if is_ours(name))
    standing: int | None = None
    gone: frozenset[str] = frozenset()

    def decide(history: History) -> Commit | None:
        nonlocal standing, gone
        standing = history.committed_as(new_commit)
        if standing is not None:
            assert history.commit(standing).manifest == new_commit.manifest, (
                "every save has an attempt of its own"
            )
            return None
        check_newest(history, new_commit.incarnation, log.store.url)
        assert history.incarnation == new_commit.incarnation, (
            "an incarnation puts its fence before it commits"
        )
        if seen is not None:
            _check_seen(history, new_commit.incarnation, seen, log.store.url)
        gone = wanted - _usable(history, references, wanted)
        return None if gone else new_commit

    appended = log.append(decide)
    if appended is not None:
        return Committed(appended.number, new_commit)
    if standing is None:
        return Gone(gone)
    return Committed(standing, new_commit)


def quarantine(log: Log, number: int, reason: str, *, rank: int, at: float) -> bool:
    """Put it into the log that a checkpoint is damaged; whether this call did. Nothing to do if it is known or retired."""

    def decide(history: History) -> Quarantine | None:
        committed = history.living.get(number)
        if committed is None or not committed.good:
            return None
        return Quarantine(commit=number, reason=reason or "damaged", rank=rank, at=at)

    return log.append(decide) is not None


def _check_seen(history: History, incarnation: int, seen: int, place: str) -> None:
    unseen = [commit.step for _, commit in history.commits(since=seen) if commit.incarnation != incarnation]
    if unseen:
        raise CommitsUnseen(incarnation=incarnation, steps=unseen, place=place)


def _usable(history: History, references: References, wanted: frozenset[str]) -> frozenset[str]:
    """Those of the wanted files that a good checkpoint names; the newest are asked first, as it is mostly the parent."""
    usable: frozenset[str] = frozenset()
    for checkpoint in reversed(history.good()):
        if len(usable) == len(wanted):
            break
        try:
            usable |= wanted & references.of(checkpoint.commit).keys()
        except CheckpointDamaged:
            # Also one that was retired meanwhile: the number is taken then, and all of this is decided again.
            continue
    return usable
