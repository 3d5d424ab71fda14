"""Where the batches of a run come from: its registry, or a service of the same recipe."""

from penstock.data import Cursor, Feed, Lane, Skips
from penstock.data import open as open_feed
from penstock.errors import CursorForeign, ServiceMismatch
from penstock.run.settings import Settings
from penstock.run.start.recipe_change import explained


def feed_at(settings: Settings, lane: Lane, cursor: Cursor | None, skips: Skips) -> Feed:
    """The recipe's batches from a cursor on."""
    try:
        return _feed_at(settings, lane, cursor, skips)
    except CursorForeign as problem:
        assert cursor is not None, "it was refused"
        raise explained(problem, settings.directory, settings.recipe, cursor.step) from problem


def _feed_at(settings: Settings, lane: Lane, cursor: Cursor | None, skips: Skips) -> Feed:
    if settings.service is None:
        return open_feed(settings.recipe, lane=lane, registry=settings.registry, cursor=cursor, skips=skips)
    feed = open_feed(settings.service, lane=lane, cursor=cursor, skips=skips)
    served = feed.plan.recipe.digest
    if served != settings.recipe.digest:
        feed.close()
        raise ServiceMismatch(wanted=f"of recipe {settings.recipe.digest}", served=f"of recipe {served}")
    return feed
