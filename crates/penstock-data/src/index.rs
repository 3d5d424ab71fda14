//! The index of a shard: where each row lies (random access) and what each block sums to (trust).
//!
//! Format version 1 is an Arrow IPC *file* that any Arrow reader opens. Each record batch has exactly one row, whose
//! columns are lists, so that columns of different lengths share a batch and a reader needs no more than the batch table:
//!
//! | column        | type                   | holds                                                                    |
//! |---------------|------------------------|--------------------------------------------------------------------------|
//! | `offset`      | `LargeList<UInt64>`    | first byte of each row                                                   |
//! | `length`      | `LargeList<UInt32>`    | bytes of each row                                                        |
//! | `name`        | `LargeList<LargeUtf8>` | key of each row, where the format has keys; else empty                   |
//! | `block`       | `LargeList<UInt64>`    | xxh3_64 of each 65,536-byte block of the file                             |
//! | `frame`       | `LargeList<UInt64>`    | first compressed byte of each frame                                      |
//! | `frame_start` | `LargeList<UInt64>`    | first decompressed byte of each frame                                    |
//!
//! A batch holds 65,536 rows (the last one fewer). Sums and frames come in the last batch with rows, and in further
//! batches without rows when there are more than 2^20 of them. Finding row `i` is therefore a shift, and the bytes of an
//! index do not depend on how the shard was read. The document with counts and digest is known only at the end, so it is
//! in the footer under `penstock.index`; the schema carries only the version under the same key. One key each, because
//! Arrow keeps them in a hash map and the bytes of an index must depend on nothing but the shard.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

mod open;
mod parse;
mod spool;
mod write;

pub(crate) use open::Frame;
pub use open::{Index, Span};
pub(crate) use write::sync_parent;
pub use write::{IndexWriter, WrittenIndex};

/// The format version written here, and the newest that can be read.
pub const INDEX_VERSION: u64 = 1;

/// Rows in every batch that holds rows, the last excepted.
pub const BATCH_ROWS: u64 = 65_536;

/// The one key used in the schema's and in the footer's key-value pairs.
pub(crate) const DOCUMENT_KEY: &str = "penstock.index";

/// Columns in file order.
pub(crate) const COLUMNS: [&str; 6] = ["offset", "length", "name", "block", "frame", "frame_start"];

/// How row ranges are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// A range lies in the file itself.
    Ranges,
    /// A range lies in the decompressed stream; the frame table leads back to the file.
    Frames,
    /// No ranges: only the reader of the format knows where rows are.
    Opaque,
}

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ranges => "ranges",
            Self::Frames => "frames",
            Self::Opaque => "opaque",
        })
    }
}

/// What an index says about its shard as a whole. Field order is part of the format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexDocument {
    /// Format version of the index.
    pub version: u64,
    /// Format of the shard, as registered: `jsonl`, `tar`, `parquet`, …
    pub format: String,
    /// How row ranges are to be read.
    pub layout: Layout,
    /// Bytes in a block; 65,536 in version 1.
    pub block_bytes: u64,
    /// Bytes of the shard.
    pub bytes: u64,
    /// Rows of the shard.
    pub rows: u64,
    /// blake3 of the shard, as `b3:<hex>`.
    pub digest: String,
    /// What a format adds: blank lines, column names, largest frame, …
    pub details: BTreeMap<String, serde_json::Value>,
}

impl IndexDocument {
    /// A whole number among the details.
    pub fn detail_u64(&self, name: &str) -> Option<u64> {
        self.details.get(name)?.as_u64()
    }
}
