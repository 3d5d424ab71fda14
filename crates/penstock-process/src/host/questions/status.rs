//! How a host stands, for whoever looks at it from outside: the driver, the simulator, people who look for a mistake.

use std::sync::Arc;

use crate::host::messages::JobOrders;
use crate::host::{Host, Membership};
use crate::lease::host_state::HostState;
use crate::tree::summary::Summary;
use crate::vote::Configuration;
use crate::vote::storage::VoteStorage;

/// How many hosts are named at most.
const NAMED_MAX: usize = 16;

/// How a host stands at a moment.
#[derive(Debug, Clone)]
pub struct HostStatus {
    /// In the coordinator's time, as far as the host knows it.
    pub now_ms: u64,
    /// Its host rank, if it has one.
    pub rank: Option<u32>,
    /// The newest term that it has seen.
    pub term: u64,
    /// The stamp of its host list.
    pub list: u64,
    /// For how long ranks may run here; negative when that is over.
    pub lease_ms: Option<i64>,
    /// The host rank of who answers its heartbeats.
    pub parent: Option<u32>,
    /// The newest orders that it has: term, number and reason.
    pub orders: Option<(u64, u64, String)>,
    /// Who votes, where it does, and whether it takes part.
    pub votes: Option<(Option<Configuration>, bool)>,
    /// Why it votes no more, where it should.
    pub silent: Option<String>,
    /// Of the leader: hosts that are not as they should be, the first of them.
    pub unsettled: Option<Vec<(u32, HostState, bool)>>,
}

impl<S: VoteStorage> Host<S> {
    /// How it stands.
    pub fn status(&self) -> HostStatus {
        let list = &self.membership.list;
        let orders = |orders: &Arc<JobOrders>| (orders.term, orders.number, orders.orders.reason.clone());
        HostStatus {
            now_ms: self.clock.coordinator_ms(self.now_ms),
            rank: self.rank,
            term: self.membership.term,
            list: list.stamp(),
            lease_ms: self.lease_end_ms.map(|end_ms| end_ms.wrapping_sub(self.now_ms) as i64),
            parent: self.upward.parent().and_then(|parent| list.rank_of(parent)),
            orders: self.orders.as_ref().map(orders),
            votes: self.voter.as_ref().map(|voter| (voter.group.configuration(), voter.group.is_voting())),
            silent: self.voter.as_ref().and_then(|voter| voter.group.failure().map(ToString::to_string)),
            unsettled: self.leading.as_ref().map(|leading| {
                let mut hosts = leading.unsettled();
                hosts.truncate(NAMED_MAX);
                hosts
            }),
        }
    }

    /// Whether this host decides.
    pub fn leads(&self) -> bool {
        self.leading.is_some()
    }

    /// What it knows of the job's hosts.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Until when ranks may run here.
    pub fn lease_end_ms(&self) -> Option<u64> {
        self.lease_end_ms
    }

    /// The newest orders for all hosts that it has.
    pub fn job_orders(&self) -> Option<&JobOrders> {
        self.orders.as_deref()
    }

    /// What is with this host and all below it.
    pub fn summary(&self) -> &Summary {
        &self.below.merged
    }

    /// What is with this host alone.
    pub fn own_summary(&self) -> &Summary {
        &self.below.own
    }

    /// Of the leader: where each host is, by host rank.
    pub fn host_states(&self) -> Option<Vec<HostState>> {
        self.leading.as_ref().map(|leading| leading.states())
    }
}
