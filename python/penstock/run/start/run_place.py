"""Whether all hosts of a job see the directory of the run: else decisions of one host would be unknown to the others (R2)."""

from penstock.run.contract import Trainable
from penstock.run.directory import RunDirectory
from penstock.state.ranks.one_place import SHOW_S, host_position, leave_token, look_for_token
from penstock.store import open_store


def check_run_place(state: Trainable, directory: RunDirectory, token: str) -> None:
    """Rank 0 leaves the token of this life there, one rank of every other host looks for it. All ranks call it."""
    position = host_position()
    if position is None or position.ranks != state.ranks:
        return
    store = open_store(directory.path)
    if state.rank == 0:
        leave_token(store, token)
    # From here on it is written, so a host that does not see it soon never will.
    state.share(b"written")
    if position.looks:
        look_for_token(store, token, position, timeout_s=SHOW_S)
