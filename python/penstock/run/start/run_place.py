"""The token of a life, and with it whether all hosts of a job see the directory of the run.

On local disks, decisions of one host would be unknown to the others (R2).
"""

import uuid

from penstock.run.contract import Trainable
from penstock.run.directory import RunDirectory
from penstock.state.ranks.one_place import SHOW_S, host_position, leave_token, look_for_token
from penstock.store import open_store


def life_token(state: Trainable, directory: RunDirectory) -> str:
    """The same on all ranks, and in no other life. All ranks call it.

    On many hosts rank 0 leaves it in the directory before it tells the others, and one rank of every other host looks for it there: a
    host that does not see it soon never will.
    """
    token = uuid.uuid4().hex
    position = host_position()
    if position is None or position.ranks != state.ranks:
        return state.share(token.encode()).decode()
    store = open_store(directory.path)
    if state.rank == 0:
        leave_token(store, token)
    token = state.share(token.encode()).decode()
    if position.looks:
        look_for_token(store, token, position, timeout_s=SHOW_S)
    return token
