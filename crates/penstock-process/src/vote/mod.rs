//! The hosts that keep the journal of a job: which of them leads, and what a majority of them has on disk.
//!
//! [`group::VoterGroup`] is a replicated log without input and output: messages go in, messages come out, and time is a
//! number of ticks. The protocol is `omnipaxos`; around it stand the parts that it leaves to its users. *Sessions*
//! ([`session`]) make any network look like the ordered one that it assumes. *Checks* ([`message`]) keep away from it
//! what would make it panic. The *ledger* ([`ledger`]) is its memory, which [`storage`] makes durable before anything
//! is answered. The *handover* ([`handover`]) takes the history from one set of voters to the next.
//! [`tie_breaker`] is a directory that decides where two hosts cannot, and from which a job starts again;
//! [`state_keeper`] does there what a host asks for.

mod engine;
pub mod error;
pub mod file_storage;
pub mod group;
pub mod handover;
pub mod ledger;
pub mod message;
pub mod record;
mod rivals;
pub mod session;
pub mod state_keeper;
pub mod state_store;
pub mod storage;
pub mod tie_breaker;

use serde::{Deserialize, Serialize};

use error::{Result, VoteError};

/// The most voters of one configuration. A term has three bits for the voter that leads in it.
pub const VOTERS_MAX: usize = 7;
/// The highest ballot of a configuration; above, terms would not fit their 32 bits.
pub const BALLOT_MAX: u32 = (1 << 29) - 1;

/// Who votes. Made once for a job, and then only by an agreement of the voters before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Counts from 1.
    pub number: u32,
    /// The hosts that vote. Of voters that are equally good the first one leads.
    pub voters: Vec<u64>,
}

impl Configuration {
    /// Refuses what cannot be voted in.
    pub fn check(&self) -> Result<()> {
        let mut sorted = self.voters.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let reason = if self.number == 0 {
            "its number must be positive, got 0".to_owned()
        } else if self.voters.is_empty() || self.voters.len() > VOTERS_MAX {
            format!("it must have 1 to {VOTERS_MAX} voters, got {}", self.voters.len())
        } else if sorted.len() != self.voters.len() {
            "it names a voter twice".to_owned()
        } else {
            return Ok(());
        };
        Err(VoteError::Configuration { number: self.number, reason })
    }

    /// Number of a voter inside the protocol, which wants small ones, and prefers the highest one as leader.
    pub(crate) fn place_of(&self, host: u64) -> Option<u64> {
        let index = self.voters.iter().position(|voter| *voter == host)?;
        Some((self.voters.len() - index) as u64)
    }

    /// The voter with a number of the protocol.
    pub(crate) fn host_at(&self, place: u64) -> Option<u64> {
        let index = self.voters.len().checked_sub(usize::try_from(place).ok()?)?;
        self.voters.get(index).copied()
    }

    /// Term of a leader: grows with the configuration, then with the ballot, and is never that of two leaders.
    pub(crate) fn term(&self, ballot: u32, place: u64) -> u64 {
        u64::from(self.number) << 32 | u64::from(ballot.min(BALLOT_MAX)) << 3 | place
    }
}

/// What a voter has met since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VoteStatistics {
    /// Messages that failed a check.
    pub refused: u64,
    /// Messages that came late, twice or for an earlier opening.
    pub stale: u64,
    /// How often steps were lost and a log had to be compared again.
    pub resyncs: u64,
    /// How often something was made durable.
    pub syncs: u64,
}
