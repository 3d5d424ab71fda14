//! The processes that the agent owns: workers that run, those of earlier lives, and what workers left.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::gang::TrackedGang;
use crate::agent::gang::orphans::Orphans;

/// Workers of all gangs.
pub(in crate::agent) struct Workers {
    /// Workers that run, by process: their gang and rank.
    pub(in crate::agent) running: BTreeMap<i32, (usize, u32)>,
    /// Workers of earlier lives that sleep in the kernel and cannot be killed. Nobody waits for them.
    pub(in crate::agent) abandoned: BTreeSet<i32>,
    /// What is known of each gang beside its state.
    pub(in crate::agent) tracked: Vec<TrackedGang>,
    /// What dead workers left, and what was done about it.
    pub(in crate::agent) orphans: Orphans,
    /// How many of those were there at the last look.
    pub(in crate::agent) orphans_left: u32,
}

impl Workers {
    /// Nobody runs yet.
    pub(in crate::agent) fn open(gangs: usize) -> Self {
        Self {
            running: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            tracked: (0..gangs).map(|_| TrackedGang::default()).collect(),
            orphans: Orphans::default(),
            orphans_left: 0,
        }
    }
}
