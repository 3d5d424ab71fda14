"""Adopting: a checkpoint of another place exists here too, without a byte of its tensors being copied.

The manifest names the other place's files by their whole address. Nothing keeps them from being pruned there; who loads a checkpoint whose
files are gone is told so.
"""

import uuid

from msgspec.structs import replace

from penstock._rust import digest
from penstock.state.checkpoint import Checkpoint, checkpoint_of
from penstock.state.log.commit import Gone, commit
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import put_manifest
from penstock.state.log.records import Commit
from penstock.state.log.references import References
from penstock.store import Store


def adopt(checkpoint: Checkpoint | None, store: Store) -> Checkpoint | None:
    """Begin a place with incarnation 0, whose only checkpoint is that of another place, if one is given."""
    log = Log(store)
    fence(log, Member(0, 1, uuid.uuid4().hex, 0))
    if checkpoint is None:
        return None
    files = [
        file
        if "://" in file.name
        else replace(file, name=f"{checkpoint.store.url}/{file.name}", duplicates=())
        for file in checkpoint.manifest.files
    ]
    data = replace(checkpoint.manifest, files=files).encode()
    put_manifest(store, digest(data), data)
    new_commit = Commit(
        incarnation=0,
        step=checkpoint.step,
        attempt=0,
        manifest=digest(data),
        bytes=checkpoint.bytes,
        at=checkpoint.made,
        metrics=checkpoint.metrics,
    )
    committed = commit(log, new_commit, borrowed=(), references=References(store))
    assert not isinstance(committed, Gone), "nothing was borrowed"
    return checkpoint_of(committed, store)
