//! What can go wrong between us and stored bytes. Every variant names the file; those that can name the byte do.

use std::fmt;
use std::io;
use std::ops::{Range, RangeInclusive};

/// A failure to read bytes, or to trust the bytes that were read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// There is nothing under this name.
    #[error("`{name}` does not exist")]
    NotFound {
        /// The file as the caller named it.
        name: String,
    },
    /// The file exists and we may not read it.
    #[error("`{name}` may not be read: permission denied")]
    Denied {
        /// The file as the caller named it.
        name: String,
    },
    /// The file ended inside the bytes asked for.
    #[error("`{name}` ends early: wanted {wanted} bytes at byte {offset}, got {got}")]
    Short {
        /// The file as the caller named it.
        name: String,
        /// Where the read began.
        offset: u64,
        /// How many bytes were asked for.
        wanted: u64,
        /// How many bytes there were.
        got: u64,
    },
    /// A block does not have the sum it was registered with.
    #[error("`{name}` is corrupt at byte {offset}: expected xxh3 {expected:016x}, found {found:016x}")]
    Corrupt {
        /// The file as the caller named it.
        name: String,
        /// First byte of the block.
        offset: u64,
        /// The registered sum.
        expected: u64,
        /// The sum of what is there now.
        found: u64,
    },
    /// Bytes that were good when they were first read are not any more, and steps got bytes of the file before that showed.
    #[error("{problem}; {}", delivered(.steps))]
    Delivered {
        /// What is wrong with them.
        problem: Box<IoError>,
        /// Steps that read the file since it was last seen unchanged.
        steps: RangeInclusive<u64>,
    },
    /// The file is not as long as when it was registered.
    #[error("`{name}` has {found} bytes, but was registered with {expected}")]
    SizeChanged {
        /// The file as the caller named it.
        name: String,
        /// Its registered length in bytes.
        expected: u64,
        /// Its length in bytes now.
        found: u64,
    },
    /// The caller asked for bytes that the registered file never had.
    #[error("bytes {offset}..{end} of `{name}` were asked for, but it has {bytes}")]
    Beyond {
        /// The file as the caller named it.
        name: String,
        /// First byte asked for.
        offset: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Its registered length in bytes.
        bytes: u64,
    },
    /// A store that is not a disk of this machine did not give what was asked for.
    #[error("{0}")]
    Store(Box<StoreProblem>),
    /// Anything else the operating system said.
    #[error("reading `{name}` failed{}: {reason}", at(*.offset))]
    Other {
        /// The file as the caller named it.
        name: String,
        /// Where the read began, when it had begun.
        offset: Option<u64>,
        /// The operating system's words.
        reason: String,
    },
}

impl IoError {
    /// The typed form of what the operating system said about `name`.
    pub fn from_system(name: &str, offset: Option<u64>, error: &io::Error) -> Self {
        let name = name.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound { name },
            io::ErrorKind::PermissionDenied => Self::Denied { name },
            _ => Self::Other { name, offset, reason: error.to_string() },
        }
    }
}

/// In which way a store failed. Each is one class of exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Nothing has that name.
    Missing,
    /// The store has no such bucket or container.
    NoBucket,
    /// The store knows us and does not let us, or does not know us (any more).
    Denied,
    /// The store asked us to slow down, until the budget of retries was spent.
    Throttled,
    /// No answer, or no progress, within the deadline.
    TimedOut,
    /// The object is another one than when it was opened.
    Changed,
    /// Anything else, after retries.
    Failed,
}

/// What a store did not do, of which object, after how many tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreProblem {
    /// In which way it failed.
    pub kind: StoreKind,
    /// What was wanted: `read`, `write`, `list`, `describe`, `delete`.
    pub verb: &'static str,
    /// The object.
    pub url: String,
    /// The bytes that were wanted, where it was a range.
    pub range: Option<Range<u64>>,
    /// How often it was tried.
    pub tries: u32,
    /// How long that took, in milliseconds.
    pub waited_ms: u64,
    /// The store's words.
    pub reason: String,
}

impl fmt::Display for StoreProblem {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(into, "cannot {} `{}`", self.verb, self.url)?;
        if let Some(range) = &self.range {
            write!(into, " bytes {}..{}", range.start, range.end)?;
        }
        write!(into, " ({} tries, {} ms): {}", self.tries, self.waited_ms, self.reason)
    }
}

/// What is said of steps that got bytes of a file before its change showed.
pub fn delivered(steps: &RangeInclusive<u64>) -> String {
    format!("steps {} to {} read it since it was last seen unchanged", steps.start(), steps.end())
}

fn at(offset: Option<u64>) -> String {
    offset.map(|byte| format!(" at byte {byte}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_file_offset_and_values() {
        let corrupt = IoError::Corrupt { name: "a.jsonl".into(), offset: 65_536, expected: 1, found: 2 };
        assert_eq!(
            corrupt.to_string(),
            "`a.jsonl` is corrupt at byte 65536: expected xxh3 0000000000000001, found 0000000000000002"
        );
        let denied = IoError::from_system("b", None, &io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(denied, IoError::Denied { name: "b".into() });
        let other = IoError::from_system("b", Some(7), &io::Error::other("disk on fire"));
        assert_eq!(other.to_string(), "reading `b` failed at byte 7: disk on fire");
    }
}
