//! Subscriptions to what hosts write: the way of each through the tree. A subscription goes to the leader and from there down to the
//! hosts that it is for, as a question does. What they send goes back the same way as bulk, which only the ends understand.
//!
//! Whoever follows repeats the subscription each second, so a way mends itself when hosts are lost or another leads, and ends by itself
//! when nobody repeats it. Every repetition has a number: a host on the way to the leader hears it twice, on its way up and on its way
//! down, and what comes back turns where it came from first. How much may be on its way is settled between the two ends.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::host::messages::Body;
use crate::host::{Effect, Host, LinkId};
use crate::tree::host_list::HostId;
use crate::tree::rank_set::RankSet;
use crate::vote::storage::VoteStorage;

/// Subscriptions that pass one host at once; more are refused.
pub const SUBSCRIPTIONS_MAX: usize = 16;
/// One that nobody repeats for so long is over.
const KEPT_MS: u64 = 10_000;
/// How long the end of a job waits at most for what ranks wrote last, where somebody follows: it goes on as soon as all of it has come.
/// Less than those above wait for a goodbye.
pub(super) const LAST_WORDS_MS: u64 = 2500;

/// Who gets what is sent for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// Somebody on this host.
    Here,
    /// Whoever is at the end of a link.
    Link(LinkId),
}

/// One subscription, as it is said.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// Made up by who follows.
    pub stream: u64,
    /// Counts its repetitions.
    pub number: u64,
    /// What is followed, for all hosts.
    pub what: Value,
    /// What each host is told, by host rank: these are the hosts that it is for.
    pub told: Vec<(u32, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    Here,
    Host(HostId),
}

#[derive(Debug)]
struct Way {
    asker: Asker,
    number: u64,
    /// The newest repetition passed here on its way to the leader.
    from_below: bool,
    /// The newest that was passed on to hosts below.
    passed_down: u64,
    /// This host sends something for it.
    sends: bool,
    until_ms: u64,
}

/// All that pass this host.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    ways: BTreeMap<u64, Way>,
}

impl Subscriptions {
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.ways.values().map(|way| way.until_ms).min()
    }
}

impl<S: VoteStorage> Host<S> {
    /// Who gets what is sent for a subscription; nobody where it is not known.
    pub fn toward(&self, stream: u64) -> Option<Toward> {
        match self.subscriptions.ways.get(&stream)?.asker {
            Asker::Here => Some(Toward::Here),
            Asker::Host(host) => self.links.to(host).map(Toward::Link),
        }
    }

    /// Somebody on this host follows, or still does.
    pub(super) fn follow(&mut self, subscription: Subscription) {
        self.take_upward(Asker::Here, subscription);
    }

    pub(super) fn hear_follow(&mut self, from: HostId, down: bool, subscription: Subscription) {
        if !down {
            return self.take_upward(Asker::Host(from), subscription);
        }
        if self.leading.is_some() || self.upward.parent() != Some(from) {
            // Said before the tree changed; it will be repeated.
            return;
        }
        let (stream, number) = (subscription.stream, subscription.number);
        let known = self.subscriptions.ways.get(&stream).map(|way| (way.number, way.from_below));
        match known {
            Some((newest, _)) if newest > number => return,
            // It passed here before on its way up: what comes back turns here.
            Some((newest, true)) if newest == number => {}
            _ if !self.note_way(Asker::Host(from), &subscription, false) => return,
            _ => {}
        }
        self.pass_down(subscription);
    }

    fn take_upward(&mut self, asker: Asker, subscription: Subscription) {
        let known = self.subscriptions.ways.get(&subscription.stream);
        if known.is_some_and(|way| way.from_below && way.number >= subscription.number) {
            return;
        }
        if !self.note_way(asker, &subscription, true) {
            return;
        }
        if self.leading.is_some() {
            return self.pass_down(subscription);
        }
        if let Some(parent) = self.upward.parent().filter(|parent| asker != Asker::Host(*parent)) {
            let Subscription { stream, number, what, told } = subscription;
            self.say(parent, Body::Follow { stream, number, down: false, what, told });
            return;
        }
        // Nobody is above: this host has only itself.
        let Subscription { stream, what, told, .. } = subscription;
        self.tell_source(stream, what, told);
    }

    /// Notes where a subscription came from; false where there are too many.
    fn note_way(&mut self, asker: Asker, subscription: &Subscription, from_below: bool) -> bool {
        let ways = &mut self.subscriptions.ways;
        let (stream, number) = (subscription.stream, subscription.number);
        if !ways.contains_key(&stream) && ways.len() >= SUBSCRIPTIONS_MAX {
            let why = format!("{} has {SUBSCRIPTIONS_MAX} subscriptions already", self.me.name);
            match asker {
                Asker::Here => self.out.push(Effect::Unfollowed(stream, why)),
                Asker::Host(host) => drop(self.say(host, Body::Unfollow { stream, why: Some(why) })),
            }
            return false;
        }
        let until_ms = self.now_ms + KEPT_MS;
        let new = Way { asker, number, from_below, passed_down: 0, sends: false, until_ms };
        let way = ways.entry(stream).or_insert(new);
        (way.asker, way.number, way.from_below, way.until_ms) = (asker, number, from_below, until_ms);
        true
    }

    /// Passes it on to the hosts below that it is for, each with what is for its subtree, and sends something itself.
    fn pass_down(&mut self, subscription: Subscription) {
        let Subscription { stream, number, what, mut told } = subscription;
        let Some(way) = self.subscriptions.ways.get_mut(&stream) else { return };
        if way.passed_down >= number {
            return;
        }
        way.passed_down = number;
        let mut below: Vec<(HostId, RankSet)> =
            self.below.subtrees().map(|(host, hosts)| (host, hosts.clone())).collect();
        below.sort_unstable_by_key(|(host, _)| *host);
        for (host, hosts) in below {
            let theirs = |(rank, _): &(u32, Value)| hosts.contains(*rank) && self.rank != Some(*rank);
            let (theirs, rest): (Vec<_>, Vec<_>) = told.into_iter().partition(theirs);
            told = rest;
            if !theirs.is_empty() {
                let what = what.clone();
                self.say(host, Body::Follow { stream, number, down: true, what, told: theirs });
            }
        }
        self.tell_source(stream, what, told);
    }

    fn tell_source(&mut self, stream: u64, what: Value, told: Vec<(u32, Value)>) {
        let own = told.into_iter().find(|(rank, _)| self.rank == Some(*rank));
        let (Some((rank, mut told)), Some(way)) = (own, self.subscriptions.ways.get_mut(&stream)) else {
            return;
        };
        if self.ending.has_begun() && !way.sends {
            // Who has said everything says nothing more, and nobody begins now.
            return;
        }
        way.sends = true;
        self.note_leader_time(&mut told);
        self.out.push(Effect::Source { stream, rank, what, told });
    }

    /// Who followed on this host has left.
    pub(super) fn unfollow(&mut self, stream: u64) {
        if self.subscriptions.ways.get(&stream).is_some_and(|way| way.asker == Asker::Here) {
            self.end_way(stream);
        }
    }

    /// A subscription is over, where it comes from who is nearer to its asker; from anybody else it is refused.
    pub(super) fn hear_unfollow(&mut self, from: HostId, stream: u64, why: Option<String>) {
        let Some(way) = self.subscriptions.ways.get(&stream) else { return };
        match (way.asker, why) {
            (asker, None) if asker == Asker::Host(from) || self.upward.parent() == Some(from) => {
                self.end_way(stream);
            }
            (Asker::Here, Some(why)) => self.out.push(Effect::Unfollowed(stream, why)),
            (Asker::Host(host), Some(why)) if host != from => {
                self.say(host, Body::Unfollow { stream, why: Some(why) });
            }
            _ => {}
        }
    }

    /// Forgets a subscription, and says so to all around who may know it.
    fn end_way(&mut self, stream: u64) {
        let Some(way) = self.subscriptions.ways.remove(&stream) else { return };
        if way.sends {
            self.out.push(Effect::EndSource(stream));
        }
        let parent = self.upward.parent().filter(|_| self.leading.is_none() && way.from_below);
        for host in self.below.heard().into_iter().chain(parent) {
            if way.asker != Asker::Host(host) {
                self.say(host, Body::Unfollow { stream, why: None });
            }
        }
    }

    pub(super) fn note_source_ended(&mut self, stream: u64) {
        if let Some(way) = self.subscriptions.ways.get_mut(&stream) {
            way.sends = false;
        }
    }

    /// Whether the end of the job waits for what ranks wrote last: senders end when all of it was received, and whoever follows here leaves
    /// when that of all hosts has come.
    pub(super) fn waits_for_last_words(&mut self, since_ms: u64) -> bool {
        if since_ms == self.now_ms && !self.subscriptions.ways.is_empty() {
            self.out.push(Effect::FinishSources);
        }
        let waits = |way: &Way| way.sends || way.asker == Asker::Here;
        self.now_ms < since_ms + LAST_WORDS_MS && self.subscriptions.ways.values().any(waits)
    }

    /// Ends what nobody repeats.
    pub(super) fn keep_subscriptions(&mut self) {
        let now_ms = self.now_ms;
        let over = |way: &Way| now_ms >= way.until_ms;
        let over: Vec<u64> =
            self.subscriptions.ways.iter().filter(|(_, way)| over(way)).map(|(stream, _)| *stream).collect();
        over.into_iter().for_each(|stream| self.end_way(stream));
    }
}
