"""Data: recipes and the streams of batches that follow from them."""

from penstock.data.batch import Batch, Origin, join
from penstock.data.cursor import Cursor
from penstock.data.feed import Feed, batch_at
from penstock.data.feed import open_feed as open
from penstock.data.lane import Lane
from penstock.data.recipe import Recipe, Source
from penstock.data.records import RecordBatch
from penstock.data.service import Service
from penstock.data.skipping import SkipJournal
from penstock.data.skips import Skips
from penstock.data.stages import Chat, Filter, Map, Pack, Pad, Tokenize, Truncate
from penstock.data.statistics import FeedStatistics
from penstock.data.weights import Ramp

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
    "Tokenize",
    "Truncate",
    "batch_at",
    "join",
    "open",
]
