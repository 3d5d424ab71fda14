//! The first failures of a life over many hosts: the same sixteen, whatever the order of arrival.

use serde::{Deserialize, Serialize};

use crate::job::exit::Exit;

/// Failures that are kept; of the others the number is.
pub const FAILURES_MAX: usize = 16;

/// A rank that ended as it should not. The order of the fields is that of failures: causes before effects, then by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankFailure {
    /// It named a closed connection, so somebody else failed before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_connection: bool,
    /// When that was noticed, in the coordinator's time.
    pub at_ms: u64,
    /// Its number among all ranks of its role.
    pub rank: u32,
    /// The host that it was on.
    pub host_rank: u32,
    /// How it ended; nothing when it was lost with its agent.
    pub exit: Option<Exit>,
    /// The host ended all its ranks, because its lease was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_lease: bool,
    /// How wrong the moment may be.
    #[serde(default)]
    pub within_ms: u64,
}

/// The first failures of a life, and how many more there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFailures {
    /// In order: who named a closed connection after the others, then by time and rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<RankFailure>,
    /// Beyond those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl FirstFailures {
    /// Of these.
    pub fn of(first: Vec<RankFailure>) -> Self {
        Self { first, more: 0 }.ordered()
    }

    /// Nobody failed.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.more == 0
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        (self.first.len() as u64).saturating_add(self.more)
    }

    /// With those of another.
    pub fn merge(mut self, other: &Self) -> Self {
        self.first.extend(other.first.iter().cloned());
        self.more = self.more.saturating_add(other.more);
        self.ordered()
    }

    fn ordered(mut self) -> Self {
        self.first.sort();
        let beyond = self.first.len().saturating_sub(FAILURES_MAX);
        self.first.truncate(FAILURES_MAX);
        self.more = self.more.saturating_add(beyond as u64);
        self
    }
}
