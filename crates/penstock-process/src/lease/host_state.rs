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
    /// What started it saw its processes end.
    Gone,
    /// It said goodbye.
    Left,
    /// It is heard and has no rank.
    Spare,
    /// It gets no rank.
    Excluded,
    /// Processes on it were killed long ago and are still there, in the kernel. It gets no rank until they are gone.
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
    /// What started it saw its processes end. A hint, that an engine calls it down for example, is no such fact.
    SeenEnded,
    /// It was given a host rank.
    Placed,
    /// Its host rank was given to another.
    Replaced,
    /// It is heard, and processes on it outlive SIGKILL.
    Stuck,
    /// It is heard, and they are gone.
    Freed,
}

impl HostState {
    /// Whether its host rank is another's to have (H2). Of a host that is unkillable everything else has to end first.
    pub fn is_free(self) -> bool {
        self.is_over() || self == Self::Unkillable
    }

    /// Whether nothing is expected of it any more, not even a goodbye.
    pub fn is_over(self) -> bool {
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
            // Whoever saw it end was wrong about a host that is heard again.
            (Unheard | Expired | Gone, Heard) => Some(Here),
            (Here, Silent) => Some(Unheard),
            // Silence alone never leads here: only the end of a lease does (H3).
            (Unheard, LeaseOver) => Some(Expired),
            (Here | Unheard | Joining | Spare | Unkillable, Goodbye) => Some(Left),
            (Here | Unheard | Joining | Spare | Unkillable | Expired, SeenEnded) => Some(Gone),
            (Here | Expired | Unkillable, Replaced) => Some(Spare),
            (Joining | Here | Unheard | Expired | Gone, Stuck) => Some(Unkillable),
            (Unkillable, Freed) => Some(Here),
            (Unkillable, LeaseOver) => Some(Expired),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    const FACTS: [Fact; 9] = [
        Fact::Heard,
        Fact::Silent,
        Fact::LeaseOver,
        Fact::Goodbye,
        Fact::SeenEnded,
        Fact::Placed,
        Fact::Replaced,
        Fact::Stuck,
        Fact::Freed,
    ];

    #[test]
    fn silence_frees_no_host_rank() {
        for state in STATES.into_iter().filter(|state| !state.is_free()) {
            assert!(!state.after(Fact::Silent).is_some_and(HostState::is_free), "{state:?}");
        }
    }

    #[test]
    fn a_host_rank_is_freed_by_a_lease_a_goodbye_whoever_started_it_or_processes_that_cannot_be_killed() {
        let frees = [Fact::LeaseOver, Fact::Goodbye, Fact::SeenEnded, Fact::Stuck];
        for state in STATES.into_iter().filter(|state| !state.is_free()) {
            for fact in FACTS.into_iter().filter(|fact| !frees.contains(fact)) {
                assert!(!state.after(fact).is_some_and(HostState::is_free), "{state:?} {fact:?}");
            }
        }
        assert!(frees.iter().all(|fact| HostState::Unheard.after(*fact).is_some_and(HostState::is_free)));
    }

    proptest! {
        /// Whatever is learned, in whatever order: a host whose processes cannot be killed gets no rank before they are gone, or
        /// before it is known in another way that nothing of it runs.
        #[test]
        fn a_host_with_processes_that_cannot_be_killed_gets_no_rank_until_they_are_gone(
            begin in 0..STATES.len(), facts in proptest::collection::vec(0..FACTS.len(), 1..40),
        ) {
            let (mut state, mut stuck) = (STATES[begin], STATES[begin] == HostState::Unkillable);
            for fact in facts.into_iter().map(|fact| FACTS[fact]) {
                let next = state.after(fact).unwrap_or(state);
                stuck = match fact {
                    Fact::Stuck => next == HostState::Unkillable,
                    Fact::Freed => false,
                    // Another has its host rank, or it is heard no more; what is heard of it later says it again.
                    _ => stuck && next == HostState::Unkillable,
                };
                prop_assert_eq!(stuck, next == HostState::Unkillable, "{:?} {:?}", state, fact);
                prop_assert!(!stuck || !next.is_fit());
                prop_assert!(fact != Fact::Silent || next == state || next == HostState::Unheard);
                prop_assert!(state != HostState::Excluded || next == state || next.is_free());
                state = next;
            }
        }

        /// A host that is over comes back only by being heard.
        #[test]
        fn nothing_but_a_sign_of_life_brings_a_host_back(
            begin in 0..STATES.len(), fact in 0..FACTS.len(),
        ) {
            let (state, fact) = (STATES[begin], FACTS[fact]);
            let next = state.after(fact).unwrap_or(state);
            if state.is_over() && !next.is_over() {
                prop_assert!(matches!(fact, Fact::Heard | Fact::Stuck | Fact::Replaced), "{:?} {:?}", state, fact);
            }
        }
    }
}
