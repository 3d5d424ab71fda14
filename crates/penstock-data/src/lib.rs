//! Shards of a dataset: scanned once into an index, then read at random and never on trust.
//!
//! [`scan`] walks a raw file once and writes its [`Index`]; [`Shard`] joins the file and the index and reads rows.

mod error;
mod index;

pub use error::DataError;
pub use index::{BATCH_ROWS, INDEX_VERSION, Index, IndexDocument, IndexWriter, Layout, Span, WrittenIndex};
