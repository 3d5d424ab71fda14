//! Which of the parallel consumers asks.

use std::fmt;

/// The `number`-th of `of` consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// From 0.
    pub number: u64,
    /// How many there are.
    pub of: u64,
}

impl fmt::Display for Lane {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(into, "{}/{}", self.number, self.of)
    }
}
