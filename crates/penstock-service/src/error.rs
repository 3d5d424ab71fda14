//! What can go wrong, on either side.

use std::time::Duration;

use bytes::Bytes;

/// A server cannot begin to serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on, or threads cannot be started.
    #[error("{reason}")]
    Start {
        /// What the system said.
        reason: String,
    },
    /// Certificates or keys cannot be used.
    #[error("{path}: {reason}")]
    Secure {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A client got no answer, or one that it cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No server gave an answer in time.
    #[error("no server answered after {tries} tries")]
    Unavailable {
        /// Servers and their last words.
        servers: Vec<(String, String)>,
        /// Requests that were tried.
        tries: u32,
        /// How long that took.
        waited: Duration,
    },
    /// A server raised an exception, which all others raise too, or which is ours to mend.
    #[error("{server} refused")]
    Refused {
        /// The server.
        server: String,
        /// The exception, as JSON.
        document: Bytes,
    },
    /// The client was closed.
    #[error("it was closed")]
    Closed,
    /// Threads cannot be started.
    #[error("threads cannot be started: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
}
