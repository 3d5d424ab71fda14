//! What can go wrong with votes, their storage and the directory that breaks ties.

use std::path::PathBuf;

/// An error of a voter.
#[derive(Debug, thiserror::Error)]
pub enum VoteError {
    /// A file of the voter cannot be read or written.
    #[error("cannot {verb} {path}: {source}")]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The disk has no room for a vote. The voter says nothing until it has.
    #[error("the disk of {path} is full, so this voter is silent until there is room: {source}")]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Bytes that were durable once have changed. Votes that are forgotten could be given twice.
    #[error("{path} is damaged at byte {offset}: {reason}; let another host take the place of this voter")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// Another process votes with these files.
    #[error("{path} is in use by another process")]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A set of voters that cannot be voted in.
    #[error("configuration {number} of the voters is refused: {reason}")]
    Configuration {
        /// Its number.
        number: u32,
        /// What is wrong.
        reason: String,
    },
    /// The library that keeps the log met something that it did not expect. The voter is silent from then on.
    #[error("the replicated log stopped, so this voter is silent until it is opened again: {reason}")]
    Log {
        /// Its own words.
        reason: String,
    },
    /// The store of `--state` did not do what was asked.
    #[error("the store of {url} failed: {reason}")]
    Store {
        /// What `--state` names.
        url: String,
        /// What the store, or the process that speaks to it, said.
        reason: String,
    },
    /// A job with the same state directory lives.
    #[error("host {host} runs this job with the same state directory {directory}; stop it first")]
    Living {
        /// The host that wrote there last.
        host: String,
        /// The directory.
        directory: PathBuf,
    },
}

/// Why a record or a change of the voters was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLeader {
    /// Another voter leads, or none.
    #[error("this voter does not lead; the leader is {leader:?}")]
    Follower {
        /// The voter that leads, as far as this one knows.
        leader: Option<u64>,
    },
    /// The voters are about to change. The next configuration takes the record.
    #[error("the voters are about to change")]
    Reconfiguring,
    /// More than one message can carry.
    #[error("a record of {bytes} bytes is too large, at most {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The proposed voters cannot vote.
    #[error("{0}")]
    Voters(String),
    /// Its disk or its log failed.
    #[error("this voter is silent")]
    Silent,
}

/// What fallible functions of votes return.
pub type Result<T> = std::result::Result<T, VoteError>;
