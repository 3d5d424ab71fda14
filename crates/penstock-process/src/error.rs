//! What can go wrong between a role and the system, with the values that matter.

use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the launcher, the keeper or the agent.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A file of the job cannot be read or written.
    #[error("cannot {verb} {path}: {source}")]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the job says something that we do not understand.
    #[error("{path} is damaged or from another version: {source}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The command of the job cannot be started.
    #[error("cannot start `{command}`: {source}")]
    Start {
        /// The first word of the command.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A call to the system failed that should not.
    #[error("{call} failed: {source}")]
    System {
        /// Which call.
        call: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system does not let the job have a namespace of its own.
    #[error(
        "cannot isolate the job: the system does not let it {step} ({source}); run it without --isolate, or ask for unprivileged user namespaces to be allowed"
    )]
    Isolate {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Slots that are wanted cannot be held.
    #[error("{0}")]
    Slots(String),
    /// A file does not keep the key of a job as a key has to be kept.
    #[error("cannot use the key in {path}: {why}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// Nothing can be received at the address of this host.
    #[error("cannot listen at {address}: {source}; choose an address of this host and a port that is free")]
    Listen {
        /// Where other hosts were to find us.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The command line of the executable makes no sense.
    #[error("{0}")]
    Usage(String),
}

/// What fallible functions of this crate return.
pub type Result<T> = std::result::Result<T, ProcessError>;

/// Says something on standard error. It may be a file on a full disk or a terminal that is gone: supervision goes on without it,
/// where `eprintln!` would panic.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let sentence = $crate::logs::console::harmless(&format!($($words)*));
        let _ = writeln!(std::io::stderr(), "{sentence}");
    }};
}
