//! Facts recorded cheaply, kept through a kill, and read back up to the tear.
//!
//! A process has one [`Recorder`]. Recording encodes a small [`record`] on the stack and copies it into a
//! lock-free [`ring`]; a background thread drains the ring into one file ([`spool`]); [`read`] decodes such a
//! file, [`columns`] makes arrays of it. Recording never waits: when the ring is full the event is counted as lost and training goes on.

pub mod columns;
mod error;
pub mod read;
pub mod record;
pub mod recorder;
pub mod ring;
pub mod spool;
pub mod steps;

pub use columns::{EventColumns, read_columns};
pub use error::EventError;
pub use read::EventFile;
pub use record::{Encoder, Fact, Record, Value};
pub use recorder::{Recorder, Statistics};
