"""How many checkpoints a run keeps when its policy does not say.

A run that begins now keeps the last few, or as many as the policy's rollback may have to reach behind. A run that was begun when
everything was kept goes on like that, and says so once: nothing that somebody counts on disappears because of a new release.
"""

import logging
from pathlib import Path

from penstock.errors import RunOnlyObserved, RunUnknown
from penstock.run.journal import journal
from penstock.run.policies import Policy
from penstock.run.settings import Settings
from penstock.state import Keep

#: Without a rollback that needs more.
LAST = 3
_LOG = logging.getLogger("penstock.run")


def keep_of(settings: Settings) -> Keep | None:
    """What the checkpoints of a run are kept by; None for everything."""
    if settings.policy.keep is not None:
        return settings.policy.keep
    return None if _keeps_everything(settings) else Keep(last=max(LAST, needed_by(settings.policy)))


def needed_by(policy: Policy) -> int:
    """How many of the last checkpoints there have to be so that one is from before the steps that a rollback leaves out.

    One more than is counted, because a checkpoint may be made that no schedule asks for.
    """
    return 1 + policy.checkpoints_needed


def say_once(writing: journal.Journal, settings: Settings) -> None:
    """Put it into the journal, once in the life of a run, that everything is kept."""
    if (
        settings.checkpoints is not None
        or settings.policy.keep is not None
        or not _keeps_everything(settings)
    ):
        return
    if any(entry.kind == "retention" for entry in journal.read(settings.directory.path)):
        return
    place = Path(settings.directory.path)
    _LOG.warning(
        "%s was begun when all checkpoints were kept, and goes on like that; Policy(keep=Keep(last=%d)) changes it",
        place,
        LAST,
    )
    writing.write("retention", keeps="everything")


def _keeps_everything(settings: Settings) -> bool:
    try:
        return not settings.directory.about().keeps_few
    except (RunUnknown, RunOnlyObserved):
        # It begins now. Of several ranks another may be ahead, and record steps before rank 0 has said what the run is.
        return False
