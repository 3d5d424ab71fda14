//! Where a host is in its life, by a table of steps: every host has one state, and nothing else leads from one to another (H8).

use serde::{Deserialize, Serialize};

/// Where a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It asked to take part.
    Joining,
    /// It is heard.
    Here,
    /// It was not heard for a while. Nothing follows from that.
    Unheard,
    /// Its lease is over, so nothing of it runs any more.
    Expired,
    /// An engine saw its processes end.
    Gone,
    /// It said goodbye.
    Left,
    /// It is heard and has no rank.
    Spare,
    /// It gets no rank.
    Excluded,
    /// Processes on it sleep in the kernel; it gets no rank until they are gone.
    Unkillable,
}

/// What is learned about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fact {
    /// A heartbeat of it came.
    Heard,
    /// None came for two and a half times the usual.
    Silent,
    /// Its lease can have no rest.
    LeaseOver,
    /// It said goodbye.
    Goodbye,
    /// An engine saw its processes end.
    SeenEnded,
    /// It was given a host rank.
    Placed,
    /// Its host rank was given to another.
    Replaced,
    /// Processes on it cannot be killed.
    Stuck,
    /// They are gone.
    Freed,
}

impl HostState {
    /// Whether its host rank may be given to another (H2).
    pub fn is_free(self) -> bool {
        matches!(self, Self::Expired | Self::Gone | Self::Left)
    }

    /// Whether a rank may be started on it.
    pub fn is_fit(self) -> bool {
        self == Self::Here
    }

    /// The next state; nothing for a fact that changes none.
    pub fn after(self, fact: Fact) -> Option<Self> {
        use Fact::{Freed, Goodbye, Heard, LeaseOver, Placed, Replaced, SeenEnded, Silent, Stuck};
        use HostState::{Expired, Gone, Here, Joining, Left, Spare, Unheard, Unkillable};
        match (self, fact) {
            (Joining | Spare, Placed) => Some(Here),
            (Unheard | Expired, Heard) => Some(Here),
            (Here, Silent) => Some(Unheard),
            // Silence alone never leads here: only the end of a lease does (H3).
            (Unheard, LeaseOver) => Some(Expired),
            (Here | Unheard | Joining | Spare | Unkillable, Goodbye) => Some(Left),
            (Here | Unheard | Joining | Spare | Unkillable | Expired, SeenEnded) => Some(Gone),
            (Here | Expired | Unkillable, Replaced) => Some(Spare),
            (Here, Stuck) => Some(Unkillable),
            (Unkillable, Freed) => Some(Here),
            (Unkillable, LeaseOver) => Some(Expired),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [HostState; 9] = [
        HostState::Joining,
        HostState::Here,
        HostState::Unheard,
        HostState::Expired,
        HostState::Gone,
        HostState::Left,
        HostState::Spare,
        HostState::Excluded,
        HostState::Unkillable,
    ];

    #[test]
    fn silence_frees_no_host_rank() {
        for state in STATES {
            assert!(!state.after(Fact::Silent).is_some_and(HostState::is_free), "{state:?}");
        }
    }

    #[test]
    fn a_host_rank_is_freed_by_a_lease_a_goodbye_or_an_engine_only() {
        let frees = [Fact::LeaseOver, Fact::Goodbye, Fact::SeenEnded];
        for state in STATES.into_iter().filter(|state| !state.is_free()) {
            for fact in [Fact::Heard, Fact::Silent, Fact::Placed, Fact::Replaced, Fact::Stuck, Fact::Freed] {
                assert!(!state.after(fact).is_some_and(HostState::is_free), "{state:?} {fact:?}");
            }
        }
        assert!(frees.iter().all(|fact| HostState::Unheard.after(*fact).is_some_and(HostState::is_free)));
    }
}
