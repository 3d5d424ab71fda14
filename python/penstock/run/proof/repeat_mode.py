"""Repeating: a program that is started with ``PENSTOCK_REPEAT`` executes steps of its run again, in a place of its own.

The variable names a document that says which run, where instead, and up to which step. The program is the user's, unchanged: its ``Run`` finds
the document, turns to the other place, and ends the process when the last step is over. The run itself is only read.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from penstock.errors import RepetitionFailed, UsageError
from penstock.run.policies import Policy
from penstock.state import Keep

VARIABLE = "PENSTOCK_REPEAT"


class Repeat(msgspec.Struct, frozen=True):
    """What is executed again."""

    #: The directory that the program gives to its run.
    run: str
    #: Where everything is written instead.
    directory: str
    #: The first step that is not executed.
    stop: int
    #: Steps before which the run has checkpoints, to be compared with those made here.
    saves: tuple[int, ...] = ()

    def place_of(self, directory: str | os.PathLike[str]) -> Path:
        """Where a run of this program goes."""
        if Path(directory).resolve() != Path(self.run):
            raise UsageError(
                f"the program makes a run in {Path(directory).resolve()}, but steps of {self.run} are to be executed again",
                hint="a program that has several runs can be repeated for none of them",
            )
        return Path(self.directory)

    def policy_of(self, policy: Policy) -> Policy:
        """The program's rules, with other times for saving and stopping."""
        return replace(
            policy,
            save_every=None,
            save_every_s=None,
            save_at=self.saves,
            keep=Keep(every=1),
            stop_at=self.stop,
        )


def given(environment: Mapping[str, str] = os.environ) -> Repeat | None:
    """What is to be executed again, if this process was started for that."""
    path = environment.get(VARIABLE)
    if path is None:
        return None
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Repeat)
    except (OSError, msgspec.MsgspecError) as reason:
        raise RepetitionFailed(command=VARIABLE, reason=f"{path} cannot be read: {reason}") from reason
