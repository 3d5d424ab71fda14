//! The step table: one row per step and rank, kept through a kill, read back around damage.
//!
//! The loop hands a row to a bounded queue and never waits. A thread appends rows to a raw [`tail`] every 5 ms; every
//! 4,096 rows it makes a checked, compressed column [`block`] of them. Values that a device gives later are patched into
//! rows that are still in the tail. [`read`] joins blocks and tail, and names what is damaged.

pub mod block;
pub(crate) mod budget;
pub(crate) mod drain;
pub(crate) mod files;
pub mod follow;
pub mod frame;
pub mod parts;
pub mod read;
pub mod rollup;
pub(crate) mod tail;
pub mod writer;

pub use follow::{StepFollower, StepNews};
pub use read::{StepFile, read_steps};
pub use writer::{StepStatistics, StepWriter};

/// Marks a value that was not measured. In a column of floating-point numbers it is -2⁶³ as such a number.
pub const UNMEASURED: i64 = i64::MIN;

/// What a column holds; values travel as 64 bits either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Signed integers: nanoseconds, bytes, counts.
    Integer,
    /// Floating-point numbers, by their bits.
    Float,
}

impl Kind {
    /// The bits that say "not measured".
    pub fn unmeasured(self) -> i64 {
        match self {
            Kind::Integer => UNMEASURED,
            Kind::Float => (UNMEASURED as f64).to_bits() as i64,
        }
    }
}

/// A column's name and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Such as `host.forward`. At most 255 bytes; longer ones are refused where they are added.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}
