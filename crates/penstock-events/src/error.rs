//! What can go wrong with a recording, apart from losing events (which is counted, not raised).

use std::io;
use std::path::PathBuf;

/// A failure to start a recording or to read one.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The file could not be created, opened or read.
    #[error("cannot {verb} event file {}: {reason}", path.display())]
    Io {
        /// What was being done: "create", "open", "read".
        verb: &'static str,
        /// The recording.
        path: PathBuf,
        /// What the system said.
        #[source]
        reason: io::Error,
    },
    /// The file does not begin with an event file's header.
    #[error("{} is not an event file: {reason}", path.display())]
    NotEvents {
        /// The file that was given.
        path: PathBuf,
        /// Which expectation failed.
        reason: String,
    },
    /// The file was written by a newer Penstock.
    #[error("{} has event format {found}, but this build reads up to {known}", path.display())]
    Version {
        /// The recording.
        path: PathBuf,
        /// The format named in its header.
        found: u16,
        /// The newest format this build knows.
        known: u16,
    },
}
