//! What can go wrong.

use penstock_io::IoError;

/// Failures of saving and loading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("cannot {verb} {path}: {reason}")]
    System {
        /// What was tried.
        verb: &'static str,
        /// With which file.
        path: String,
        /// What the system said.
        reason: String,
        /// Whether it said that there is no room.
        full: bool,
    },
    /// A chunk does not have its hash.
    #[error("{file} is damaged at byte {offset}: expected {expected:032x}, found {found:032x}")]
    Damaged {
        /// The file.
        file: String,
        /// Where the chunk begins.
        offset: u64,
        /// Which piece it belongs to.
        piece: usize,
        /// The hash that was saved.
        expected: u128,
        /// The hash of what is there.
        found: u128,
    },
    /// A file ends before a piece does.
    #[error("{file} has {bytes} bytes, but a piece ends at byte {end}")]
    Short {
        /// The file.
        file: String,
        /// Its length.
        bytes: u64,
        /// Where the piece ends.
        end: u64,
        /// Which piece it is.
        piece: usize,
    },
    /// Sizes that cannot be right together.
    #[error("{reason}")]
    Shape {
        /// What does not fit.
        reason: String,
    },
    /// Bytes could not be read at all.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl StateError {
    /// From what the system said.
    pub(crate) fn system(verb: &'static str, path: &str, error: &std::io::Error) -> Self {
        let full = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
        Self::System { verb, path: path.to_owned(), reason: error.to_string(), full }
    }
}
