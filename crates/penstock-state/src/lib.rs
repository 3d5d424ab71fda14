//! Moving state: captured copies are hashed and written, pieces are read, checked and put where they belong.
//!
//! Nothing here knows what a checkpoint is; Python decides which piece goes where. This crate does what must be fast and must
//! not hold an interpreter's lock: [`copy_all`] and [`Arena`] capture, [`hash_pieces`] says what was captured, [`write_file`]
//! makes it durable, [`read_pieces`] brings any layout of pieces into any layout of targets.

mod aligned;
mod arena;
mod boxes;
mod copy;
mod error;
mod hash;
mod parallel;
mod read;
mod residence;
mod write;

pub use arena::Arena;
pub use boxes::{Extent, Overlap};
pub use copy::{Move, copy_all};
pub use error::StateError;
pub use hash::{chunk_hash, hash_pieces};
pub use read::{DirectFile, Piece, Reading, Target, read_pieces};
pub use write::{Mode, write_file};
