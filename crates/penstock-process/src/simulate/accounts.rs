//! Where time goes: every millisecond belongs to one account, so the accounts sum to the time exactly (O1).

use serde::{Deserialize, Serialize};

/// What time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// Steps that nothing undid, by all hosts that were asked for.
    Useful,
    /// The share of such time that hosts would have used which a smaller gang does not have.
    Smaller,
    /// Steps that a failure undid.
    Redone,
    /// Training stood still for a save.
    Saving,
    /// From a fault to the moment when somebody noticed.
    Detection,
    /// From there to the end of the lease of the lost host.
    Lease,
    /// What was left of a life was ended.
    Ending,
    /// For a host, because no spare was there.
    Waiting,
    /// The pause before a further restart in a row.
    Backoff,
    /// Hosts prepare, processes start and find each other.
    Start,
    /// The checkpoint is loaded.
    Load,
    /// The job had given up.
    Over,
}

impl Account {
    /// All of them, as they are shown.
    pub const ALL: [Self; 12] = [
        Self::Useful,
        Self::Smaller,
        Self::Redone,
        Self::Saving,
        Self::Detection,
        Self::Lease,
        Self::Ending,
        Self::Waiting,
        Self::Backoff,
        Self::Start,
        Self::Load,
        Self::Over,
    ];
}

/// A time that was no training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its first millisecond.
    pub from_ms: u64,
    /// The first one after it.
    pub to_ms: u64,
    /// What it was spent on.
    pub account: Account,
}

/// The accounts of one job.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    sums: [u64; Account::ALL.len()],
    spans: Vec<Span>,
    /// What a smaller gang did is counted in hosts; this is what did not make a whole millisecond yet.
    rest: u64,
}

/// What a stretch of training came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Steps that stay.
    pub(super) kept_ms: u64,
    /// Steps that are lost.
    pub(super) lost_ms: u64,
    /// Saves.
    pub(super) saving_ms: u64,
}

impl Accounts {
    /// A time that was no training.
    pub(super) fn spend(&mut self, account: Account, from_ms: u64, to_ms: u64) {
        if to_ms <= from_ms {
            return;
        }
        self.sums[account as usize] += to_ms - from_ms;
        match self.spans.last_mut().filter(|last| last.to_ms == from_ms && last.account == account) {
            Some(last) => last.to_ms = to_ms,
            None => self.spans.push(Span { from_ms, to_ms, account }),
        }
    }

    /// Training by `size` of `all` hosts that ended then. Returns what the kept steps are worth with all hosts.
    pub(super) fn train(&mut self, stretch: Stretch, ended_ms: u64, size: u32, all: u32) -> u64 {
        let (size, all) = (u64::from(size), u64::from(all.max(1)));
        let host_ms = stretch.kept_ms * size + self.rest;
        let useful_ms = (host_ms / all).min(stretch.kept_ms);
        self.rest = host_ms - useful_ms * all;
        self.sums[Account::Useful as usize] += useful_ms;
        self.sums[Account::Smaller as usize] += stretch.kept_ms - useful_ms;
        self.sums[Account::Saving as usize] += stretch.saving_ms;
        // Saves among them are short; a picture shows what was lost as the time before the fault.
        self.spend(Account::Redone, ended_ms.saturating_sub(stretch.lost_ms), ended_ms);
        useful_ms
    }

    /// Each with its sum.
    pub(super) fn sums(&self) -> Vec<(Account, u64)> {
        Account::ALL.into_iter().map(|account| (account, self.sums[account as usize])).collect()
    }

    /// What was no training, in order.
    pub(super) fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}
