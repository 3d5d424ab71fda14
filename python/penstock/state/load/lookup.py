"""Finding the checkpoint to load: the newest whole one, beside others that save and prune; and saying so when there is none left."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock import events
from penstock.errors import (
    CheckpointDamaged,
    CheckpointRetired,
    NothingLoads,
    NumbersContended,
    ObjectMissing,
)
from penstock.state.checkpoint import Checkpoint, checkpoint_of
from penstock.state.load.load import locate
from penstock.state.log.commit import quarantine
from penstock.state.log.history import Committed, History
from penstock.state.log.log import Log
from penstock.state.manifest import DataFile
from penstock.state.save.duplicates import duplicate_files, is_covered
from penstock.store import Store

_LOOKERS = 16
#: How often a checkpoint may be retired just when it is looked at.
_LOOKS_MAX = 100


def newest_whole(log: Log, *, rank: int, marks: bool) -> Checkpoint | None:
    """The newest good checkpoint whose manifest is whole and whose files are there in full; with ``marks`` others are quarantined.

    One that was retired while it was looked at is no damage: a newer one is there, so it is looked for again.
    """
    for _ in range(_LOOKS_MAX):
        retired = False
        for committed in reversed(log.read().good()):
            checkpoint = checkpoint_of(committed, log.store)
            reason = missing_parts(checkpoint)
            if not reason:
                return checkpoint
            if is_retired(log, committed.number):
                retired = True
                break
            events.record("state.quarantine", step=checkpoint.step, reason=reason)
            if marks:
                quarantine(log, committed.number, reason, rank=rank, at=time.time())
        if not retired:
            return None
    raise NumbersContended(name=f"{log.store.url}/log", attempts=_LOOKS_MAX)


def is_retired(log: Log, number: int) -> bool:
    """Whether a checkpoint that was there exists no longer."""
    history = log.read()
    return number not in history.living and number not in history.lost


def retired_or(problem: CheckpointDamaged, log: Log, checkpoint: Checkpoint) -> Exception:
    """Damage for what it is: a checkpoint whose files are gone because it was retired is not damaged."""
    if checkpoint.store.url == log.store.url and is_retired(log, checkpoint.number):
        return CheckpointRetired(place=log.store.url, step=checkpoint.step, number=checkpoint.number)
    return problem


def missing_parts(checkpoint: Checkpoint) -> str:
    """Why a checkpoint is not whole, as far as that is seen without reading tensors."""
    try:
        manifest = checkpoint.manifest
    except CheckpointDamaged as problem:
        return str(problem)
    files = manifest.files

    def look(file: DataFile) -> str:
        owner, name = locate(checkpoint.store, file.name)
        try:
            bytes_ = owner.describe(name).bytes
        except ObjectMissing:
            return f"{file.name} is missing"
        return "" if bytes_ == file.bytes else f"{file.name} has {bytes_} bytes, not {file.bytes}"

    if len(files) == 1:
        return look(files[0])
    with ThreadPoolExecutor(min(_LOOKERS, max(1, len(files)))) as pool:
        reasons = list(pool.map(look, files))
    bad = [number for number, reason in enumerate(reasons) if reason]
    duplicates = duplicate_files(manifest) if bad else {}
    whole = {name for name, bytes_ in duplicates.items() if not look(DataFile(name, bytes_))}
    return next((reasons[number] for number in bad if not is_covered(manifest, number, whole)), "")


def newest_that(
    history: History, store: Store, fits: "Callable[[Checkpoint], bool] | None"
) -> Committed | None:
    """The newest good one that fits."""
    newest_first = reversed(history.good())
    return next(
        (committed for committed in newest_first if fits is None or fits(checkpoint_of(committed, store))),
        None,
    )


def refuse_emptiness(log: Log, incarnation: int | None = None) -> None:
    """Raise ``NothingLoads`` when checkpoints were committed and none of them is good.

    ``incarnation`` is that of the caller, which has put its own fence.
    """
    history, place = log.read(), log.store.url
    if history.good():
        return
    reasons = {
        f"step {committed.step} (number {committed.number})": committed.damage
        for committed in history.checkpoints()
    }
    reasons |= {f"record {number}": "it is lost, and may have been a commit" for number in history.lost}
    fences = [fence for _, fence in history.fences()]
    if not reasons and all(fence.incarnation == incarnation for fence in fences):
        # Whoever put a manifest had put a fence before.
        manifests = sum(1 for _ in log.store.entries("manifests"))
        if manifests:
            reasons["log"] = f"it is lost, but {manifests} manifests are there"
    if reasons:
        raise NothingLoads(place=place, reasons=reasons)
