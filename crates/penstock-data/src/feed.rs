//! The feed: from a plan to batches, made by any number of threads and delivered in order.
//!
//! [`build_table`] turns measured lengths into a [`Table`] once, [`build_rest`] what is left of one when the length of rows
//! changes. [`SourceStream`] finds and reads what stands at an index of a source: it is a chain of [`Leg`]s over
//! [`Part`]s. [`Maker`] joins sources into the batch of a step from nothing but its number; [`Ahead`] makes batches before
//! they are asked for.

mod ahead;
mod batch;
mod buffer;
mod build;
mod error;
mod kept;
mod leg;
mod maker;
mod part;
mod records;
mod recurrence;
mod rest;
pub mod share;
mod stream;
mod table;
mod tally;
mod times;
mod tokens;
mod turns;
pub mod wire;

pub use ahead::{Ahead, MakeBatch, WAITS_MAX, Waits, depth_of};
pub use batch::{Batch, BatchBuilder, Origin, Pool};
pub use buffer::Memory;
pub use build::{Measured, Packing, build_table};
pub use error::FeedError;
pub use leg::{Keying, Leg, LegKind};
pub use maker::{Maker, MixturePlan};
pub use part::{Part, Parts, RowBytes, RowMap};
pub use records::RowDigests;
pub use rest::build_rest;
pub use stream::{Located, SourceStream, StreamPhase, TokenKind};
pub use table::{BlockRows, Table, TableHead, TableWriter};
pub use tally::Tally;
pub use times::{Doing, StageTimes};
pub use tokens::{LazyShard, OpenShard, RowLayout, Separator, TokenSource};
pub use turns::{MixtureRecipe, Reach, Turns};
