//! The way down: the hosts attached to this one, what they say of their subtrees, and the leases that they are given.

use std::sync::Arc;

use crate::host::links::id_map::IdMap;
use crate::host::messages::Body;
use crate::host::{Effect, Host};
use crate::lease::grant;
use crate::tree::host_list::HostId;
use crate::tree::rank_set::RankSet;
use crate::tree::summary::Summary;
use crate::vote::storage::VoteStorage;

/// So few children are put together whenever one says something.
const FEW: usize = 8;
/// What more of them say is gathered for so long, and a millisecond more for so many.
const GATHER_MS: u64 = 4;
const GATHER_SHARE: usize = 4;

/// A host that is attached to this one.
#[derive(Debug)]
struct Child {
    attachment: u64,
    /// Its newest heartbeat, and when it came.
    number: u64,
    arrived_ms: u64,
    /// What it says of its subtree; nothing before it has said anything, or after it was not heard for a while.
    summary: Option<Arc<Summary>>,
    /// The newest orders that it has.
    orders: [u64; 2],
    /// The end of our own lease when it was last granted one, and when that was.
    granted_end_ms: u64,
    granted_ms: Option<u64>,
}

/// All that is below a host, and the host itself.
#[derive(Debug, Default)]
pub(super) struct Below {
    children: IdMap<HostId, Child>,
    /// Of this host alone.
    pub(super) own: Arc<Summary>,
    /// Of this host and all below it.
    pub(super) merged: Arc<Summary>,
    dirty: bool,
    merged_ms: u64,
    look_ms: Option<u64>,
}

impl Below {
    /// When the next child may be silent for too long, or what children said is put together.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let merge_ms = self.dirty.then(|| self.merge_ms());
        self.look_ms.into_iter().chain(merge_ms).min()
    }

    /// Many children that say something at once are put together at once.
    fn merge_ms(&self) -> u64 {
        let count = self.children.len();
        if count <= FEW { 0 } else { self.merged_ms + GATHER_MS + (count / GATHER_SHARE) as u64 }
    }

    /// Whether a host is attached here.
    pub(super) fn has(&self, host: HostId) -> bool {
        self.children.contains_key(&host)
    }

    /// A child is gone elsewhere.
    pub(super) fn remove(&mut self, host: HostId) {
        self.dirty |= self.children.remove(&host).is_some();
    }

    /// A child cannot be reached: what it says counts no more, until it comes back.
    pub(super) fn lose(&mut self, host: HostId) {
        self.remove(host);
    }

    /// What is with this host has changed.
    pub(super) fn set_own(&mut self, own: Arc<Summary>) {
        self.dirty |= *self.own != *own;
        self.own = own;
    }

    /// The children that are heard, with the host ranks of their subtrees; in no order.
    pub(super) fn subtrees(&self) -> impl Iterator<Item = (HostId, &RankSet)> {
        self.children.iter().filter_map(|(host, child)| Some((*host, &child.summary.as_ref()?.hosts)))
    }

    /// Whether a child is heard.
    pub(super) fn is_heard(&self, host: HostId) -> bool {
        self.children.get(&host).is_some_and(|child| child.summary.is_some())
    }

    /// How long ago each child was heard; in no order.
    pub(super) fn ages(&self, now_ms: u64) -> impl Iterator<Item = (HostId, u64)> {
        self.children.iter().map(move |(host, child)| (*host, now_ms.saturating_sub(child.arrived_ms)))
    }

    /// How long ago a child was heard; nothing of others.
    pub(super) fn age_ms(&self, host: HostId, now_ms: u64) -> Option<u64> {
        self.children.get(&host).map(|child| now_ms.saturating_sub(child.arrived_ms))
    }

    /// The children that are heard.
    pub(super) fn heard(&self) -> Vec<HostId> {
        let heard = self.children.iter().filter(|(_, child)| child.summary.is_some());
        let mut heard: Vec<HostId> = heard.map(|(host, _)| *host).collect();
        heard.sort_unstable();
        heard
    }
}

impl<S: VoteStorage> Host<S> {
    pub(super) fn hear_attach(&mut self, from: HostId, attachment: u64) {
        if self.membership.list.rank_of(from).is_none() {
            let why = "not in the host list".to_owned();
            self.say(from, Body::Refused { why, for_good: false, ask: None });
            return;
        }
        if self.upward.parent() == Some(from) {
            // Both have just learned something else about who leads; who stands above is found again.
            self.upward.lose(from, self.now_ms);
        }
        let child = Child {
            attachment,
            number: 0,
            arrived_ms: self.now_ms,
            summary: None,
            orders: [0, 0],
            granted_end_ms: 0,
            granted_ms: None,
        };
        if self.below.children.get(&from).is_none_or(|known| known.attachment <= attachment) {
            self.below.children.insert(from, child);
        }
    }

    pub(super) fn hear_heartbeat(
        &mut self,
        from: HostId,
        number: u64,
        orders: [u64; 2],
        summary: Option<Arc<Summary>>,
    ) {
        let now_ms = self.now_ms;
        let Some(child) = self.below.children.get_mut(&from) else {
            let why = "not attached here".to_owned();
            self.say(from, Body::Refused { why, for_good: false, ask: None });
            return;
        };
        if number <= child.number {
            return;
        }
        (child.number, child.arrived_ms, child.orders) = (number, now_ms, orders);
        if summary.is_none() && child.summary.is_none() {
            // It was silent for too long, and has to say again how it is.
            self.below.children.remove(&from);
            let why = "not attached here any more".to_owned();
            self.say(from, Body::Refused { why, for_good: false, ask: None });
            return;
        }
        if let Some(summary) = summary {
            child.summary = Some(summary);
            self.below.dirty = true;
        }
        if self.owes_answer(from) {
            self.grant(from);
        }
    }

    /// Whether a heartbeat is answered at once: the child is new, has not heard of us for a while, or does not know what we know. Else
    /// it has just had a renewal and is asked for the next heartbeat by the next one.
    fn owes_answer(&self, from: HostId) -> bool {
        let Some(child) = self.below.children.get(&from) else { return false };
        let heartbeat_ms = self.heartbeat_ms();
        let newest = self.orders.as_ref().map_or([0, 0], |orders| [orders.term, orders.number]);
        let list = self.links.to(from).map_or(0, |link| self.links.list_of(link));
        child.granted_ms.is_none_or(|granted_ms| self.now_ms >= granted_ms + heartbeat_ms)
            || self.lease_end_ms.is_some_and(|end_ms| end_ms >= child.granted_end_ms + heartbeat_ms / 2)
            || newest > child.orders
            || list < self.membership.list.stamp()
    }

    /// Tells a child how long it may run ranks, and what it has to know.
    fn grant(&mut self, to: HostId) {
        let coordinator_ms = self.clock.is_set().then(|| self.clock.coordinator_ms(self.now_ms));
        let within_ms = self.clock.within_ms();
        let Some(child) = self.below.children.get_mut(&to) else { return };
        let lease_ms = self.lease_end_ms.map_or(0, |end_ms| grant::grant_ms(end_ms, child.arrived_ms));
        let newest = self.orders.as_ref().map_or([0, 0], |orders| [orders.term, orders.number]);
        let orders = self.orders.clone().filter(|_| newest > child.orders);
        child.orders = child.orders.max(newest);
        child.granted_end_ms = self.lease_end_ms.unwrap_or(0);
        child.granted_ms = Some(self.now_ms);
        let (number, waited_ms) = (child.number, self.now_ms.saturating_sub(child.arrived_ms));
        let list = self.list_news(to);
        let body = Body::Grant { number, lease_ms, waited_ms, coordinator_ms, within_ms, orders, list };
        self.say(to, body);
    }

    /// A renewal goes down at once, and each host answers it with its next heartbeat. So in quiet times a host wakes once for both, a
    /// parent hears all of its children at once, and leases are as young at the bottom of the tree as at its top.
    pub(super) fn renew_children(&mut self) {
        let gain_ms = self.heartbeat_ms() / 2;
        let end_ms = self.lease_end_ms.unwrap_or(0);
        let short = |child: &Child| child.summary.is_some() && child.granted_end_ms + gain_ms < end_ms;
        let children = self.below.children.iter().filter(|(_, child)| short(child));
        let mut children: Vec<HostId> = children.map(|(host, _)| *host).collect();
        children.sort_unstable();
        children.into_iter().for_each(|child| self.grant(child));
    }

    /// A renewal, new orders or a new term go down at once, to all that are heard.
    pub(super) fn push_to_children(&mut self) {
        for child in self.below.heard() {
            self.grant(child);
        }
    }

    /// Forgets what silent children said, and puts together what there is.
    pub(super) fn keep_below(&mut self) {
        let limit_ms = grant::unheard_ms(self.config.lease_ms);
        let now_ms = self.now_ms;
        let below = &mut self.below;
        if below.look_ms.is_none_or(|look_ms| now_ms >= look_ms) {
            for child in below.children.values_mut() {
                if now_ms > child.arrived_ms + limit_ms && child.summary.take().is_some() {
                    below.dirty = true;
                }
            }
            below.look_ms = (!below.children.is_empty()).then_some(now_ms + limit_ms / 4);
        }
        if below.dirty && now_ms >= below.merge_ms() {
            (below.dirty, below.merged_ms) = (false, now_ms);
            let mut summaries = below.children.values().filter_map(|child| child.summary.as_ref());
            below.merged = match summaries.next() {
                None => Arc::clone(&below.own),
                Some(first) => {
                    let merged = (*below.own).clone().merge(first);
                    Arc::new(summaries.fold(merged, |merged, summary| merged.merge(summary)))
                }
            };
        }
    }

    pub(super) fn hear_goodbye(&mut self, from: HostId, host: HostId, why: String) {
        self.below.remove(host);
        if from == host {
            self.out.push(Effect::Note(format!("goodbye of {host}: {why}")));
        }
        match (&mut self.leading, self.upward.parent()) {
            (Some(leading), _) => leading.note_goodbye(host, why),
            (None, Some(parent)) => drop(self.say(parent, Body::Goodbye { host, why })),
            (None, None) => {}
        }
    }
}
