"""Small checkpoints, saved and loaded with the real log and real files: what tests of the log let run against each other.

As a program (``python -m tests.state.savers ROLE PLACE …``) it is one process of such a test: it says that
it is ready, and a line on its standard input lets it go.
"""

import json
import sys
import uuid
from collections.abc import Collection

from penstock._rust import digest
from penstock.errors import CheckpointDamaged, ObjectMissing, PenstockError
from penstock.state.log.commit import Gone, commit
from penstock.state.log.history import Committed
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.prune import prune
from penstock.state.log.records import Commit
from penstock.state.log.references import References
from penstock.state.log.retention import Keep
from penstock.state.manifest import FORM, DataFile, Entries, Manifest, manifest_name, read_manifest
from penstock.state.ranks.agreement import agree
from penstock.store import Store, open_store


def begin(log: Log, ranks: int = 1, incarnation: int | None = None) -> Member:
    """Rank 0 of a new incarnation."""
    return fence(log, Member(0, ranks, uuid.uuid4().hex, incarnation))


def content(name: str) -> bytes:
    """What a data file holds: something that follows from its name, and is longer for later ones."""
    return (name + " ").encode() * 20


def save(
    log: Log,
    member: Member,
    step: int,
    *,
    attempt: int = 0,
    borrowed: Collection[str] = (),
    seen: int | None = None,
    metrics: dict[str, float] | None = None,
) -> Committed | Gone:
    """Write a file and a part for each rank, then a manifest, then the commit."""
    save_name = f"{member.incarnation}/{step}-{attempt}"
    own = [f"data/{save_name}/{rank}.safetensors" for rank in range(member.ranks)]
    for rank, name in enumerate(own):
        log.store.put_if_absent(name, content(name))
        log.store.put_if_absent(f"parts/{save_name}/{rank}.json", b"{}")
    assert member.incarnation is not None
    manifest = Manifest(
        form=FORM,
        run="test",
        step=step,
        incarnation=member.incarnation,
        parent="",
        made=float(attempt),
        ranks=member.ranks,
        chunk_bytes=1 << 20,
        files=[DataFile(name, len(content(name))) for name in [*own, *borrowed]],
        tensors={},
        values={},
        entries=Entries({}, []),
    )
    data = manifest.encode()
    log.store.put_if_absent(manifest_name(digest(data)), data)
    new_commit = Commit(member.incarnation, step, attempt, digest(data), len(data), 0.0, metrics or {})
    return commit(log, new_commit, borrowed=borrowed, references=References(log.store), seen=seen)


def save_for_sure(log: Log, member: Member, step: int, borrowed: Collection[str]) -> Committed:
    """Save; what cannot be borrowed any more is written again, in another attempt."""
    for attempt in range(10):
        done = save(log, member, step, attempt=attempt, borrowed=borrowed)
        if isinstance(done, Committed):
            return done
        assert done.files <= set(borrowed)
        borrowed = set(borrowed) - done.files
    raise AssertionError("files went away ten times")


def must_save(log: Log, member: Member, step: int, **more: object) -> Committed:
    """Save, where nothing stands in the way."""
    done = save(log, member, step, **more)  # type: ignore[arg-type]
    assert isinstance(done, Committed)
    return done


def files_of(store: Store, checkpoint: Committed) -> list[str]:
    """Names of the data files of a checkpoint."""
    name = manifest_name(checkpoint.commit.manifest)
    return [file.name for file in read_manifest(name, store.get(name), checkpoint.commit.manifest).files]


def check(store: Store, name: str) -> None:
    """Read a data file and compare every byte."""
    try:
        data = store.get(name)
    except ObjectMissing as reason:
        raise CheckpointDamaged(file=name, reason="it is missing") from reason
    if data != content(name):
        raise CheckpointDamaged(file=name, reason="these are not the bytes that were saved")


def load(store: Store, checkpoint: Committed, rank: int) -> None:
    """Read and compare the files that this rank needs: every ``ranks``-th one."""
    names = files_of(store, checkpoint)
    for name in names:
        if name.endswith(f"/{rank}.safetensors"):
            check(store, name)


def _resume(place: str, rank: str, ranks: str, token: str, deadline_s: str, tell: str = "") -> None:
    """Join an incarnation, agree, and say on what. With ``tell``, wait for another line then and try to save a step."""
    log = Log(open_store(place))
    member = fence(log, Member(int(rank), int(ranks), token))
    agreed = agree(
        log, member, lambda committed: load(log.store, committed, member.rank), deadline_s=float(deadline_s)
    )
    step = None if agreed.checkpoint is None else agreed.checkpoint.step
    _say(incarnation=member.incarnation, step=step, choice=agreed.choice)
    if tell:
        sys.stdin.readline()
        done = save(log, member, int(tell), seen=agreed.seen)
        _say(number=done.number if isinstance(done, Committed) else None)


def _save_many(place: str, first: str, last: str) -> None:
    """Begin an incarnation and save step after step, each borrowing the files of the one before."""
    log = Log(open_store(place))
    member = begin(log, ranks=2)
    for step in range(int(first), int(last)):
        parent = log.read().newest_good()
        borrowed = [] if parent is None else files_of(log.store, parent)[:2]
        save_for_sure(log, member, step, borrowed)
    _say(saved=int(last) - int(first))


def _prune_many(place: str, times: str) -> None:
    """Prune again and again."""
    log = Log(open_store(place))
    for _ in range(int(times)):
        prune(log, Keep(last=2))
    _say(pruned=True)


def _append_many(place: str, name: str, count: str) -> None:
    """Commit step after step under the incarnation that stands, from a log that others write to as well."""
    log = Log(open_store(place))
    for step in range(int(count)):
        log.append(
            lambda history, step=step: Commit(history.incarnation, step, int(name), f"b3:{name}", 0, 0.0)
        )
    _say(appended=int(count))


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _main(role: str, *arguments: str) -> None:
    roles = {"resume": _resume, "save": _save_many, "prune": _prune_many, "append": _append_many}
    _say(ready=role)
    if not sys.stdin.readline():
        # The test is gone.
        return
    try:
        roles[role](*arguments)
    except PenstockError as problem:
        _say(error=type(problem).__name__, missing=getattr(problem, "missing", None), text=str(problem))


if __name__ == "__main__":
    _main(*sys.argv[1:])
