"""Data: recipes and the streams of batches that follow from them."""

from penstock.data.feed.batch import Batch, Origin, join
from penstock.data.feed.cursor import Cursor
from penstock.data.feed.feed import Feed, batch_at
from penstock.data.feed.feed import open_feed as open
from penstock.data.feed.lane import Lane
from penstock.data.feed.token_batch import TokenBatch
from penstock.data.monitor.statistics import FeedStatistics
from penstock.data.recipe.recipe import Recipe, Source
from penstock.data.recipe.skip_journal import SkipJournal
from penstock.data.recipe.skips import Skips
from penstock.data.recipe.weights import Ramp
from penstock.data.records import RecordBatch
from penstock.data.service import Service
from penstock.data.stages import Chat, Filter, Map, Pack, Pad, Tokenize, Truncate

__all__ = [
    "Batch",
    "Chat",
    "Cursor",
    "Feed",
    "FeedStatistics",
    "Filter",
    "Lane",
    "Map",
    "Origin",
    "Pack",
    "Pad",
    "Ramp",
    "Recipe",
    "RecordBatch",
    "Service",
    "SkipJournal",
    "Skips",
    "Source",
    "TokenBatch",
    "Tokenize",
    "Truncate",
    "batch_at",
    "join",
    "open",
]
