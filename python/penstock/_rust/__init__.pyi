"""The Rust side of Penstock, one stub for each file of ``crates/penstock-python/src``. Not public: use the packages that carry these names.

The extension is one module; its stubs are a folder only for the reader, so nothing can be imported from below ``penstock._rust``
when a program runs.
"""

from penstock._rust.cache import HostCache, disk_room, parse_size, read_object, use_cache
from penstock._rust.eras import slice_order
from penstock._rust.events import (
    EventColumns,
    EventReader,
    Span,
    events_abandon,
    events_flush,
    events_path,
    events_start,
    events_statistics,
    events_stop,
    record,
    span,
)
from penstock._rust.feed import Feed, FeedBatch, Tally
from penstock._rust.plan import (
    build_rest,
    build_table,
    first_position,
    held_out,
    ramp_part,
    stops_at,
    token_lengths,
)
from penstock._rust.records import digest_records, digest_rows, usable_row
from penstock._rust.scan import digest, digest_file, quick_hash, reframe, scan_known, scan_rows, zstd_head
from penstock._rust.service import BatchServer, ServiceClient, ServiceFeed
from penstock._rust.shard import ShardFile, archive_members, find_damage, look_again, read_for_step
from penstock._rust.share import Exchange, SharedBytes, StepClaim
from penstock._rust.simulation import simulate, simulation_trace
from penstock._rust.state import Arena, copy_buffers, hash_buffers, read_tensors, write_buffers
from penstock._rust.steps import Part, PartClock, StepFile, StepFollower, StepNews, StepWriter
from penstock._rust.store import StoreClient, store_counts, store_flying
from penstock._rust.structure import structures

# One name per line would be a page of its own.
# fmt: off
__all__ = [
    "Arena", "BatchServer", "EventColumns", "EventReader", "Exchange", "Feed", "FeedBatch", "HostCache", "Part", "PartClock",
    "ServiceClient", "ServiceFeed", "ShardFile", "SharedBytes", "Span", "StepClaim", "StepFile", "StepFollower", "StepNews", "StepWriter",
    "StoreClient", "Tally",
    "__version__",
    "archive_members", "build_rest", "build_table", "copy_buffers", "digest", "digest_file",
    "digest_records", "digest_rows", "disk_room", "events_abandon", "events_flush", "events_path",
    "events_start", "events_statistics", "events_stop", "find_damage", "first_position", "hash_buffers",
    "held_out", "look_again", "parse_size", "quick_hash", "ramp_part", "read_for_step", "read_object",
    "read_tensors", "record", "reframe", "scan_known", "scan_rows", "simulate", "simulation_trace", "slice_order", "span", "stops_at",
    "store_counts", "store_flying", "structures", "token_lengths", "usable_row", "use_cache",
    "write_buffers", "zstd_head",
]
# fmt: on

__version__: str
