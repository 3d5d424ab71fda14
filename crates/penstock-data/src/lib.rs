//! Shards of a dataset: scanned once into an index, then read at random and never on trust.
//!
//! [`scan`](scan::scan) walks a raw file once and writes its [`Index`]; [`Shard`] joins the file and the index and reads
//! rows. The raw file stays as it is, and whatever changes in it afterwards is noticed before a byte of it is delivered.

mod archive;
mod error;
pub mod feed;
mod frame_cache;
mod gather;
mod index;
mod peek;
pub mod plan;
pub mod scan;
mod shard;
#[cfg(test)]
mod testing;

pub use archive::{Member, members};
pub use error::DataError;
pub use gather::Gathered;
pub use index::{BATCH_ROWS, INDEX_VERSION, Index, IndexDocument, IndexWriter, Layout, Span, WrittenIndex};
pub use peek::zstd_head;
pub use shard::Shard;
