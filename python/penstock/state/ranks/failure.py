"""A rank that cannot take part in a save, and how the others learn of it while they wait for it.

Ranks that can talk to each other wait in an exchange for what each of them holds: one that has nothing to say says that. Others find it
in the store, beside the parts of the save. Either way they get the reason at once, and not a timeout.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.errors import ObjectMissing, PenstockError, ResumeFailed, SaveFailed
from penstock.store import Store

Exchange = Callable[[bytes], list[bytes]]
#: What a rank begins with that cannot take part; the reason follows. No digest, token or list begins like this.
_FAILED = b"failed"
#: How much of a reason travels.
_REASON_MAX = 4000


class RankFailure(msgspec.Struct, frozen=True):
    """Why a rank cannot take part, as the others are told."""

    rank: int
    reason: str
    hint: str | None = None

    @classmethod
    def of(cls, rank: int, problem: Exception) -> "RankFailure":
        """An error of ours says enough; of others the type is needed to understand the words."""
        if isinstance(problem, PenstockError):
            return cls(rank, str(problem)[:_REASON_MAX], problem.hint)
        return cls(rank, f"{type(problem).__name__}: {problem}"[:_REASON_MAX])

    def error(self, step: int | None) -> SaveFailed | ResumeFailed:
        """What is raised on the ranks that could: for the save of a step, or for the beginning of all saves."""
        if step is None:
            return ResumeFailed(rank=self.rank, reason=self.reason)
        return SaveFailed(step=step, reason=f"rank {self.rank}: {self.reason}", hint=self.hint)


def exchanged(exchange: Exchange, document: bytes, step: int | None) -> list[bytes]:
    """What every rank has given, for the save of a step, or for the beginning of all saves; an error if one of them cannot take part.

    Frameworks have errors of their own for ranks that do not come, and none of them says what to do.
    """
    try:
        answers = exchange(document)
    except RuntimeError as problem:
        if step is None:
            raise
        hint = "every rank calls save, in the same order; if all do, look at the logs of the others first"
        reason = f"other ranks did not say what they hold: {problem}"
        raise SaveFailed(step=step, reason=reason, hint=hint) from problem
    for answer in answers:
        if answer.startswith(_FAILED):
            raise msgspec.json.decode(answer[len(_FAILED) :], type=RankFailure).error(step)
    return answers


def decline(exchange: Exchange, failure: RankFailure) -> None:
    """Say, instead of what the others wait for, that this rank cannot take part."""
    # They may be gone, and one of them may have failed as well: this rank has an error of its own to raise.
    with suppress(RuntimeError, SaveFailed):
        exchanged(exchange, _FAILED + msgspec.json.encode(failure), 0)


def tell_failure(store: Store, folder: str, failure: RankFailure) -> None:
    """Let ranks that meet in the store know that a save will not come about. The first one to fail is heard."""
    store.put_if_absent(f"{folder}/failed.json", msgspec.json.encode(failure))


def check_failure(store: Store, folder: str, step: int) -> None:
    """An error if a rank has let it be known that this save will not come about."""
    with suppress(ObjectMissing):
        raise msgspec.json.decode(store.get(f"{folder}/failed.json"), type=RankFailure).error(step)
