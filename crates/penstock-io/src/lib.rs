//! The outside world as the data room sees it: files that are read by position, and the sums that make them trusted.
//!
//! Everything that touches a disk goes through [`ReadAt`], which has a real side ([`LocalFile`]) and a simulated
//! one ([`MemoryFile`]) whose bytes a test can damage. [`CheckedFile`] stands on top and hands out bytes only after the
//! block they lie in has matched its registered sum; files that change later are noticed by looking at them now and then (`looks`).

mod checked;
mod error;
mod hash;
mod histogram;
mod looks;
mod mapped;
mod marks;
mod read_at;
mod reader_step;
mod sequential;
mod stamp;

pub use checked::{BlockSums, CheckedFile, Damage, DamageKind, verify_blocks};
pub use error::{IoError, StoreKind, StoreProblem, delivered};
pub use hash::{
    BLOCK_BYTES, BlockHasher, Digest, DigestParseError, DigestStream, block_count, block_sum, padded_sum,
};
pub use histogram::Histogram;
pub use looks::{LOOK_AFTER_MS, LOOKS_MAX, look_again};
pub use mapped::Mapping;
pub use read_at::{LocalFile, MemoryFile, ReadAt};
pub use reader_step::ReaderStep;
pub use sequential::{ReadAhead, SequentialReader, Window};
pub use stamp::Stamp;
