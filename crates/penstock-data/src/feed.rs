//! The feed: from a plan to batches, made by any number of threads and delivered in order.
//!
//! [`build_table`] turns measured lengths into a [`Table`] once; [`SourceStream`] finds and reads what stands at an index of a
//! source; [`Maker`] joins sources into the batch of a step from nothing but its number; [`Ahead`] makes batches before
//! they are asked for.

mod ahead;
mod batch;
mod build;
mod error;
mod maker;
mod records;
mod stream;
mod table;
mod tokens;

pub use ahead::{Ahead, MakeBatch, WAITS_MAX, Waits};
pub use batch::{Batch, BatchBuilder, Origin, Pool};
pub use build::{Packing, build_table};
pub use error::FeedError;
pub use maker::{Maker, MixturePlan};
pub use records::digest_rows;
pub use stream::{SourceStream, StreamKind};
pub use table::{BlockRows, Table, TableHead, TableWriter};
pub use tokens::{LazyShard, OpenShard, RowLayout, TokenSource};
