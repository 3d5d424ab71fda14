"""What has to be the same on all ranks although only rank 0 reads it."""

import msgspec

from penstock.data import SkipJournal, Skips
from penstock.run.contract import Trainable
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal
from penstock.run.start.decisions import Decisions, decisions_of


def shared_decisions(state: Trainable, directory: RunDirectory) -> Decisions:
    """What the journal of earlier lives binds this one to. All ranks call it."""
    mine = b""
    if state.rank == 0:
        mine = msgspec.json.encode(decisions_of(journal.read(directory.path)))
    return msgspec.json.decode(state.share(mine), type=Decisions)


def shared_skips(state: Trainable, directory: RunDirectory) -> Skips:
    """What is left out of the data. All ranks call it."""
    mine = b""
    if state.rank == 0:
        mine = msgspec.json.encode(SkipJournal(directory.skips).read().to_json())
    return Skips(**msgspec.json.decode(state.share(mine)))
