//! The way up: whom a host has as its parent, its heartbeats, and the lease that comes back.
//!
//! The parent follows from host list and leader. A host whose parent does not answer goes to the nearest ancestor that does, then
//! to a voter, and comes back when it can. Its ranks notice nothing of that.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::host::clock::ParentClock;
use crate::host::messages::{Body, Header, JobOrders};
use crate::host::{Effect, Host};
use crate::lease::grant;
use crate::tree::host_list::{HostId, ancestors};
use crate::tree::summary::Summary;
use crate::vote::storage::VoteStorage;

/// Heartbeats whose moments are remembered; older ones are too old to be answered.
const REMEMBERED: usize = 64;
/// Between two summaries that carry news, so that many changes at once travel together.
const NEWS_MS: u64 = 4;
/// How often a host without a parent looks for one.
const LOOK_MS: u64 = 100;
/// Heartbeats without an answer after which a parent is given up.
const PATIENCE: u64 = 3;
/// How often a host that is not where it belongs tries to go there, in heartbeats.
const HOMEWARD: u64 = 5;

/// What a host remembers of its way up.
#[derive(Debug, Default)]
pub(super) struct Upward {
    /// Who answers our heartbeats.
    parent: Option<HostId>,
    /// Which of the candidates is tried, and since when.
    attempt: usize,
    trying_since_ms: Option<u64>,
    attachment: u64,
    number: u64,
    /// Heartbeats and when they were sent.
    sent: VecDeque<(u64, u64)>,
    last_sent_ms: u64,
    /// A renewal has come, and asks for the next heartbeat.
    asked: bool,
    granted_ms: u64,
    home_ms: u64,
    /// When a parent last made our lease longer, or we came to it.
    renewed_ms: u64,
    told: Option<Arc<Summary>>,
    /// Which summary was last compared with it, and whether that is news.
    compared: Option<(Arc<Summary>, bool)>,
    /// Whom to attach to, the best first, and what that follows from.
    candidates: Vec<HostId>,
    candidates_of: (u64, Option<u32>, Option<HostId>),
}

/// What a parent says of our lease.
pub(super) struct Granted {
    /// The newest heartbeat that it has.
    pub(super) number: u64,
    /// From when that was sent.
    pub(super) lease_ms: u64,
    /// What the parent's clock showed, unless it has no time of the job yet.
    pub(super) shown: Option<ParentClock>,
}

impl Upward {
    /// The tree has changed: whoever is the parent now is tried first.
    pub(super) fn begin_again(&mut self) {
        (self.attempt, self.trying_since_ms) = (0, None);
        self.home_ms = 0;
    }

    /// A host cannot be reached any more.
    pub(super) fn lose(&mut self, host: HostId, now_ms: u64) {
        if self.parent == Some(host) {
            self.parent = None;
            self.trying_since_ms = Some(now_ms);
        }
    }

    /// Who answers our heartbeats.
    pub(super) fn parent(&self) -> Option<HostId> {
        self.parent
    }
}

impl<S: VoteStorage> Host<S> {
    /// Finds out whom to attach to, if what that follows from has changed.
    fn know_candidates(&mut self) {
        let of = (self.membership.list.stamp(), self.rank, self.membership.leader);
        if self.upward.candidates_of != of {
            self.upward.candidates_of = of;
            self.upward.candidates = self.find_candidates();
        }
    }

    fn find_candidates(&self) -> Vec<HostId> {
        let list = &self.membership.list;
        let Some(rank) = self.rank else { return Vec::new() };
        // Before anybody is known to lead, the first voter will: so not all hosts go to the voters first.
        let leader = self.membership.leader.or_else(|| list.voters.first().copied());
        let mut found: Vec<HostId> = Vec::new();
        if let Some(leader) = leader.and_then(|leader| list.rank_of(leader)) {
            let above = ancestors(rank, leader, self.config.fanout);
            found.extend(above.filter_map(|rank| list.host(rank)).map(|entry| entry.id));
        }
        found.extend(list.voters.iter().filter(|voter| !found.contains(voter)).copied().collect::<Vec<_>>());
        found.retain(|host| *host != self.me.id);
        found
    }

    pub(super) fn upward_due_ms(&self) -> Option<u64> {
        self.rank.filter(|_| self.leading.is_none())?;
        if self.upward.parent.is_none() {
            return Some(self.now_ms + self.heartbeat_ms().min(LOOK_MS));
        }
        let pause_ms = if self.has_news() { NEWS_MS } else { grant::unasked_ms(self.config.lease_ms) };
        Some((self.upward.last_sent_ms + pause_ms).max(self.now_ms + 1))
    }

    /// Attaches where it belongs, or as near as it can, and sends heartbeats.
    pub(super) fn climb(&mut self) {
        if self.rank.is_none() || self.leading.is_some() {
            if let Some(parent) = self.upward.parent.take() {
                // Else it counts us, and all below us, a second time until it takes us for silent.
                self.say(parent, Body::Detach);
            }
            return;
        }
        self.know_candidates();
        self.give_up_parent();
        if self.upward.parent.is_none() {
            self.find_parent();
        } else {
            self.go_home();
        }
        self.look_for_news();
        let unasked = self.now_ms >= self.upward.last_sent_ms + grant::unasked_ms(self.config.lease_ms);
        let due = unasked || std::mem::take(&mut self.upward.asked);
        let news = self.now_ms >= self.upward.last_sent_ms + NEWS_MS && self.has_news();
        if self.upward.parent.is_some() && (due || news) {
            self.send_heartbeat();
        }
    }

    /// Compares what the parent was told with what is, once for each new summary.
    fn look_for_news(&mut self) {
        let merged = &self.below.merged;
        let Some(told) = self.upward.told.as_ref().filter(|told| !Arc::ptr_eq(told, merged)) else {
            self.upward.compared = None;
            return;
        };
        if self.upward.compared.as_ref().is_none_or(|(compared, _)| !Arc::ptr_eq(compared, merged)) {
            self.upward.compared = Some((Arc::clone(merged), !told.is_like(merged)));
        }
    }

    fn has_news(&self) -> bool {
        self.upward.told.is_none() || self.upward.compared.as_ref().is_some_and(|(_, news)| *news)
    }

    /// A parent that does not answer, or has no lease to give, is none.
    fn give_up_parent(&mut self) {
        let Some(parent) = self.upward.parent else { return };
        let silent = self.now_ms > self.upward.granted_ms + PATIENCE * self.heartbeat_ms();
        let rest_ms = self.lease_end_ms.map_or(0, |end_ms| end_ms.saturating_sub(self.now_ms));
        let useless = rest_ms < self.config.lease_ms / 2
            && self.now_ms > self.upward.renewed_ms + self.config.lease_ms / 3;
        if silent || useless {
            self.say(parent, Body::Detach);
            self.upward.parent = None;
            self.upward.attempt += 1;
            self.upward.trying_since_ms = None;
        }
    }

    fn find_parent(&mut self) {
        if self.upward.candidates.is_empty() {
            return;
        }
        let since_ms = *self.upward.trying_since_ms.get_or_insert(self.now_ms);
        // The first is given a little longer, because going elsewhere and coming back costs more.
        if self.now_ms > since_ms + 2 * self.heartbeat_ms() {
            self.upward.attempt += 1;
            self.upward.trying_since_ms = Some(self.now_ms);
        }
        let target = self.upward.candidates[self.upward.attempt % self.upward.candidates.len()];
        if self.reach(target) {
            self.attach(target);
        }
    }

    /// Goes back to the parent that the tree says, if another had to do.
    fn go_home(&mut self) {
        let Some(home) = self.upward.candidates.first().copied() else { return };
        if self.upward.parent == Some(home) || self.now_ms < self.upward.home_ms {
            return;
        }
        if self.reach(home) {
            if let Some(parent) = self.upward.parent {
                self.say(parent, Body::Detach);
            }
            self.upward.attempt = 0;
            self.attach(home);
        }
        self.upward.home_ms = self.now_ms + HOMEWARD * self.heartbeat_ms();
    }

    fn attach(&mut self, parent: HostId) {
        self.upward.attachment += 1;
        let attachment = self.upward.attachment;
        self.upward.parent = Some(parent);
        self.upward.trying_since_ms = None;
        (self.upward.granted_ms, self.upward.renewed_ms) = (self.now_ms, self.now_ms);
        self.upward.told = None;
        self.neighbours.forget_told(parent);
        self.say(parent, Body::Attach { attachment });
        self.send_heartbeat();
    }

    fn send_heartbeat(&mut self) {
        let Some(parent) = self.upward.parent else { return };
        self.upward.number += 1;
        let number = self.upward.number;
        self.upward.sent.push_back((number, self.now_ms));
        if self.upward.sent.len() > REMEMBERED {
            self.upward.sent.pop_front();
        }
        self.upward.last_sent_ms = self.now_ms;
        let merged = Arc::clone(&self.below.merged);
        let known = self.upward.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &merged));
        let summary = (!known).then(|| Arc::clone(&merged));
        self.upward.told = Some(merged);
        let orders = self.orders.as_ref().map_or([0, 0], |orders| [orders.term, orders.number]);
        // Before it, so that who hears of a failure knows what its rank said last.
        self.tell_stderr(parent);
        self.say(parent, Body::Heartbeat { number, orders, summary });
    }

    /// The answer to a heartbeat, or a renewal for the newest one.
    pub(super) fn hear_grant(
        &mut self,
        from: HostId,
        header: Header,
        granted: Granted,
        orders: Option<Arc<JobOrders>>,
    ) {
        if self.upward.parent != Some(from) || header.term < self.membership.term {
            return;
        }
        // The newest are asked for most often, and whoever answers one answers no older one later.
        let Granted { number, lease_ms, shown } = granted;
        let place = self.upward.sent.iter().rposition(|(sent, _)| *sent == number);
        let Some(sent_ms) = place.and_then(|place| self.upward.sent.drain(..=place).next_back()) else {
            return;
        };
        self.upward.sent.push_front(sent_ms);
        let (_, sent_ms) = sent_ms;
        self.upward.granted_ms = self.now_ms;
        let unknown = !self.clock.is_set();
        if let Some(shown) = shown {
            self.clock.note(sent_ms, self.now_ms, shown);
        }
        if unknown && self.clock.is_set() {
            self.keep();
            self.summarise_own();
        }
        let end_ms = grant::end_ms(sent_ms, lease_ms, self.now_ms, self.config.lease_ms);
        let longer = self.lease_end_ms.is_none_or(|known_ms| end_ms > known_ms);
        if longer && lease_ms > 0 {
            self.lease_end_ms = Some(end_ms);
            self.upward.renewed_ms = self.now_ms;
            // What answers a heartbeat at once asks for none.
            self.upward.asked = self.now_ms >= self.upward.last_sent_ms + self.heartbeat_ms() / 2;
        }
        if orders.is_some_and(|orders| self.take_orders(orders)) {
            self.push_to_children();
        } else if longer {
            self.renew_children();
        }
    }

    /// Takes orders that are newer than those it has, and of no older term than it has seen (H1).
    pub(super) fn take_orders(&mut self, orders: Arc<JobOrders>) -> bool {
        let known = self.orders.as_ref().map_or([0, 0], |known| [known.term, known.number]);
        let newer = [orders.term, orders.number] > known && orders.term >= self.membership.term;
        if newer {
            self.orders = Some(orders);
        }
        newer
    }

    /// A parent that does not know us, or a host that was asked for something it does not have.
    pub(super) fn hear_refusal_of_parent(&mut self, from: HostId, why: &str) {
        if self.upward.parent == Some(from) {
            self.out.push(Effect::Note(format!("refused by a parent: {why}")));
            self.upward.parent = None;
            self.upward.trying_since_ms = None;
        }
    }

    /// Whether the lease of this host has ended, or will within its margin.
    pub fn is_out_of_lease(&self) -> bool {
        let margin_ms = grant::margin_ms(self.config.lease_ms);
        self.lease_end_ms.is_none_or(|end_ms| self.now_ms + margin_ms >= end_ms)
    }
}
