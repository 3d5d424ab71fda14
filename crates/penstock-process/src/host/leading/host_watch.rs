//! Who is heard and who is not, as the leader knows it: losses, returns, places for hosts that join, and voters in place of lost ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use crate::coordinator::view::{HostFacts, HostLoss};
use crate::host::leading::{JOINER_MS, Leading, VISIT_MS};
use crate::host::messages::JoinRequest;
use crate::host::voting::HostChange;
use crate::host::{Effect, Host};
use crate::job::Role;
use crate::lease::grant;
use crate::lease::host_state::{Fact, HostState};
use crate::tree::host_list::{HostId, ancestors};
use crate::tree::rank_set::RankSet;
use crate::tree::summary::Summary;
use crate::vote::Configuration;
use crate::vote::error::NotLeader;
use crate::vote::storage::VoteStorage;

/// Failures of hosts that are remembered of one look; when more are lost at once it is not the hosts.
const REMEMBERED_MAX: usize = 64;

impl<S: VoteStorage> Host<S> {
    /// Dials the place where hosts meet, while no host of the job is there: whoever is found there joins this job and founds no other.
    pub(super) fn visit_endpoint(&mut self, leading: &mut Leading) {
        let endpoint = self.config.endpoint;
        if self.me.address == endpoint || self.now_ms < leading.visit_ms {
            return;
        }
        leading.visit_ms = self.now_ms + VISIT_MS;
        let list = &self.membership.list;
        let place = list.hosts.iter().position(|entry| entry.address == endpoint);
        let lost = |rank: usize| leading.tracks.get(rank).is_none_or(|track| track.state.is_over());
        if place.is_none_or(lost) {
            match self.links.at(endpoint).and_then(|link| self.links.host(link)) {
                Some(host) => self.tell_term(host),
                None => self.dial(endpoint),
            }
        }
    }

    /// Takes note of names and ranks, whenever the list has changed.
    pub(super) fn know_hosts(&self, leading: &mut Leading) {
        let list = &self.membership.list;
        if leading.known == list.version {
            return;
        }
        let ranks = |(role, about): (usize, &Role)| match (role, about.host) {
            (_, Some(bound)) => {
                let of_host = |host_rank| if host_rank == bound { about.ranks } else { 0 };
                (0..list.len()).map(of_host).collect()
            }
            (0, None) => {
                let slots: Vec<u32> = list.hosts.iter().map(|entry| entry.slots).collect();
                // One number says the same of all.
                if slots.windows(2).all(|two| two[0] == two[1]) {
                    slots.into_iter().take(1).collect()
                } else {
                    slots
                }
            }
            (_, None) => vec![about.ranks],
        };
        leading.known = list.version;
        leading.resting = Arc::new(list.resting.clone());
        leading.names = Arc::new(list.hosts.iter().map(|entry| entry.name.clone()).collect());
        leading.ranks = Arc::new(self.job.roles.iter().enumerate().map(ranks).collect());
    }

    /// Takes note of who is heard and who is not.
    pub(super) fn watch_hosts(&mut self, leading: &mut Leading) {
        let list = Arc::clone(&self.membership.list);
        let merged = Arc::clone(&self.below.merged);
        let end_ms = self.lease_end_ms.unwrap_or(self.now_ms);
        let lease_ms = self.config.lease_ms;
        let (slack_ms, unheard_ms) = (grant::slack_ms(lease_ms), grant::unheard_ms(lease_ms));
        let goodbyes = std::mem::take(&mut leading.goodbyes);
        let (ended, doubted) = self.believed(leading, &merged);
        leading.look_ms = self.now_ms + self.heartbeat_ms();
        let ranks = self.ranks_to_watch(leading, &merged, goodbyes.keys().chain(ended.keys()));
        leading.look_ms = doubted.into_iter().fold(leading.look_ms, u64::min);
        let (own, fanout) = (self.rank, self.config.fanout);
        let heard = |rank: u32| Some(rank) == own || merged.hosts.contains(rank);
        let lenders = self.lost_lenders(leading, &ranks, &merged.hosts);
        let lends_to_all = !lenders.is_disjoint(&self.lenders_to_all());
        let above = |rank: u32| ancestors(rank, own.unwrap_or(0), fanout).any(|host| lenders.contains(&host));
        let lent = |rank: u32| lends_to_all || (!lenders.is_empty() && above(rank));
        let lag_ms = self.lender_lag_ms();
        for rank in ranks {
            let Some(track) = leading.tracks.get_mut(rank as usize) else { continue };
            let covered = heard(rank);
            if track.covered && !covered {
                track.lost_ms = self.now_ms;
                track.expires_ms = track.expires_ms.max(end_ms + slack_ms);
            } else if !covered && lent(rank) {
                // It may be with the other, which has a lease to give that we do not know of.
                track.expires_ms = track.expires_ms.max(end_ms + slack_ms);
            }
            track.covered = covered;
            let Some(entry) = list.host(rank) else { continue };
            let fact = match (goodbyes.get(&entry.id), ended.get(&entry.id)) {
                (Some(_), _) => Fact::Goodbye,
                (None, Some(_)) => Fact::SeenEnded,
                // What was said before the end may still be under way.
                _ if track.state == HostState::Gone && self.now_ms < track.since_ms + 2 * unheard_ms => {
                    continue;
                }
                _ if covered && merged.stuck.contains(rank) => Fact::Stuck,
                _ if covered && track.state == HostState::Unkillable => Fact::Freed,
                _ if covered => Fact::Heard,
                // Who has no lease to give may not know who else gives some.
                _ if self.now_ms >= track.expires_ms + lag_ms && self.now_ms < end_ms => Fact::LeaseOver,
                _ if self.now_ms >= track.lost_ms + unheard_ms => Fact::Silent,
                _ => {
                    leading.look_ms = leading.look_ms.min(track.lost_ms + unheard_ms);
                    continue;
                }
            };
            if !covered && !track.state.is_over() && self.now_ms < end_ms {
                leading.look_ms = leading.look_ms.min((track.expires_ms + lag_ms).max(self.now_ms + 1));
            }
            let Some(state) = track.state.after(fact) else {
                if covered && track.state == HostState::Here {
                    leading.unsettled.remove(&rank);
                }
                continue;
            };
            let said = |by: &BTreeMap<HostId, String>| by.get(&entry.id).cloned().unwrap_or_default();
            let why = match fact {
                Fact::Goodbye => format!("left: {}", said(&goodbyes)),
                Fact::SeenEnded => format!("is gone: {}", said(&ended)),
                Fact::Stuck => "has processes that cannot be killed".to_owned(),
                _ => {
                    let silent_s = (self.now_ms - track.lost_ms).div_ceil(1000);
                    format!("was not heard for {silent_s} s, and its lease expired")
                }
            };
            self.enter_state(leading, rank, state, why);
        }
    }

    /// Hosts whose processes were seen to end and that are silent, and when those that are not are looked at again. Nobody is believed about
    /// a host that is heard on: what ended is silent at once, or at the latest when any host would be. Who leads since a moment ago has not
    /// heard of all hosts yet.
    fn believed(&mut self, leading: &mut Leading, merged: &Summary) -> (BTreeMap<HostId, String>, Vec<u64>) {
        let (mut believed, mut doubted) = (BTreeMap::new(), Vec::new());
        let doubt_ms = 2 * grant::unheard_ms(self.config.lease_ms);
        for (host, (by, said_ms)) in std::mem::take(&mut leading.ended) {
            let Some(rank) = self.membership.list.rank_of(host) else { continue };
            let said_ms = said_ms.max(leading.began_ms);
            let counted =
                !merged.hosts.is_cut() || merged.hosts.ranges().last().is_some_and(|last| rank < last.end);
            let silent = Some(rank) != self.rank && counted && !merged.hosts.contains(rank);
            let new = self.now_ms < leading.began_ms + doubt_ms;
            if silent && !new {
                believed.insert(host, by);
            } else if self.now_ms < said_ms + doubt_ms {
                doubted.push(said_ms + doubt_ms);
                leading.ended.insert(host, (by, said_ms));
            } else {
                self.out.push(Effect::Note(format!("{by}: not so, host rank {rank} is heard")));
            }
        }
        (believed, doubted)
    }

    /// Has what hosts have shown since then written down for later jobs.
    pub(super) fn remember_failures(&mut self, leading: &mut Leading) {
        if !leading.to_remember.is_empty() {
            self.out.push(Effect::Remember(std::mem::take(&mut leading.to_remember)));
        }
    }

    /// A host is in another state from now on, which may free its host rank or fill it again.
    fn enter_state(&mut self, leading: &mut Leading, rank: u32, state: HostState, why: String) {
        let name = self.membership.list.host(rank).map(|entry| entry.name.clone()).unwrap_or_default();
        let Some(track) = leading.tracks.get_mut(rank as usize) else { return };
        self.out.push(Effect::Note(format!("host rank {rank} ({name}): {:?} → {state:?}", track.state)));
        let shown = match state {
            HostState::Expired => Some("lost"),
            HostState::Unkillable => Some("unkillable"),
            _ => None,
        };
        if let Some(kind) = shown.filter(|_| leading.to_remember.len() < REMEMBERED_MAX) {
            leading.to_remember.push(json!({"host": name, "kind": kind, "why": why}));
        }
        let at_ms = self.clock.coordinator_ms(self.now_ms);
        if state.is_free() && !track.state.is_free() {
            // Of a host that is heard nobody else fails before it does.
            let lost_ms = if track.covered { self.now_ms } else { track.lost_ms };
            let heard_ms = self.clock.coordinator_ms(lost_ms);
            if let Some(entry) = self.membership.list.host(rank) {
                leading.lost_ids.insert(rank, entry.id);
            }
            leading.losses.insert(rank, HostLoss { host_rank: rank, name, what: why, heard_ms, at_ms });
        } else if track.state.is_free() && !state.is_free() {
            leading.filled_ms = at_ms;
            Arc::make_mut(&mut leading.filled).insert(rank, at_ms);
        }
        (track.state, track.since_ms) = (state, self.now_ms);
    }

    /// Hosts that are heard no more, and may have given leases to others until then.
    fn lost_lenders(&self, leading: &Leading, ranks: &[u32], heard: &RankSet) -> BTreeSet<u32> {
        let goes = |rank: &u32| {
            let covered = leading.tracks.get(*rank as usize).is_some_and(|track| track.covered);
            covered && Some(*rank) != self.rank && !heard.contains(*rank)
        };
        ranks.iter().copied().filter(|rank| goes(rank) && self.may_lend(*rank)).collect()
    }

    /// Whether a host may give leases to others: it keeps the journal, or has children in the tree.
    fn may_lend(&self, rank: u32) -> bool {
        let list = &self.membership.list;
        let votes = list.host(rank).is_some_and(|entry| list.voters.contains(&entry.id));
        votes || u64::from(rank) * u64::from(self.config.fanout.max(1)) + 1 < u64::from(list.len())
    }

    /// Host ranks that any host may go to for a lease: voters, and what stands above them; all others lend below themselves only.
    fn lenders_to_all(&self) -> BTreeSet<u32> {
        let list = &self.membership.list;
        let voters = || list.voters.iter().filter_map(|voter| list.rank_of(*voter));
        let above = voters().flat_map(|rank| ancestors(rank, self.rank.unwrap_or(0), self.config.fanout));
        voters().chain(above).chain([0]).collect()
    }

    /// Until it is noticed at the latest that a host which may give leases is lost: who is with it has a lease of it until then.
    fn lender_lag_ms(&self) -> u64 {
        let list = &self.membership.list;
        let depth = ancestors(list.len().saturating_sub(1), 0, self.config.fanout).count() as u64;
        let levels =
            if list.voters.len() > 1 { depth.saturating_sub(1).max(1) } else { depth.saturating_sub(1) };
        levels * grant::unheard_ms(self.config.lease_ms)
    }

    /// Host ranks that may not be both heard and here; of all others nothing is new.
    fn ranks_to_watch<'a>(
        &self,
        leading: &mut Leading,
        merged: &Summary,
        told: impl Iterator<Item = &'a HostId>,
    ) -> Vec<u32> {
        let (list, heard) = (&self.membership.list, &merged.hosts);
        // A set that is cut says nothing about ranks beyond its last one.
        let known =
            if heard.is_cut() { heard.ranges().last().map_or(0, |range| range.end) } else { list.len() };
        let silent = heard.gaps(known).into_iter().flatten();
        leading.unsettled.extend(silent.filter(|rank| Some(*rank) != self.rank));
        leading.unsettled.extend(merged.stuck.ranges().iter().cloned().flatten());
        leading.unsettled.extend(told.filter_map(|host| list.rank_of(*host)));
        leading.unsettled.iter().copied().filter(|rank| *rank < known).collect()
    }

    /// Who lost a host rank, came back to it, or is given one.
    pub(super) fn change_of_hosts(&mut self, leading: &mut Leading) -> Option<HostChange> {
        let list = &self.membership.list;
        let free = |rank: &u32| leading.tracks.get(*rank as usize).is_some_and(|track| track.state.is_free());
        let lost: Vec<u32> = leading
            .unsettled
            .iter()
            .copied()
            .filter(|rank| free(rank) && !list.vacant.contains(rank))
            .collect();
        let back: Vec<u32> = list.vacant.iter().copied().filter(|rank| !free(rank)).collect();
        let now_ms = self.now_ms;
        leading.joiners.retain(|_, (_, at_ms)| now_ms < *at_ms + JOINER_MS);
        let mut placed = Vec::new();
        let mut taken: BTreeSet<HostId> = BTreeSet::new();
        // A voter that lost its host rank may still be the one who leads, and takes the next one itself.
        let own = self.rank.is_none().then(|| self.own_request());
        // Where processes cannot be killed, all others have to end before another host takes over (H2).
        let busy = |rank: &u32| {
            let state = leading.tracks.get(*rank as usize).map(|track| track.state);
            state == Some(HostState::Unkillable) && !self.below.merged.quiet.contains(*rank)
        };
        for rank in list.vacant.iter().copied().filter(|rank| free(rank) && !busy(rank)) {
            let wished = |request: &JoinRequest| request.node_rank.is_none_or(|wish| wish == rank);
            let fits = |request: &JoinRequest| {
                list.host(rank).is_some_and(|entry| entry.slots == request.entry.slots)
            };
            let mut candidates: Vec<&JoinRequest> = leading
                .joiners
                .values()
                .map(|(request, _)| request)
                .chain(&own)
                .filter(|request| !request.stuck && fits(request) && !taken.contains(&request.entry.id))
                .collect();
            let rack = list.host(rank).map(|entry| &entry.rack);
            let elsewhere = |request: &JoinRequest| Some(&request.entry.rack) != rack;
            candidates.sort_by_key(|request| (!wished(request), elsewhere(request), request.entry.id));
            if let Some(request) = candidates.first() {
                taken.insert(request.entry.id);
                placed.push((rank, request.entry.clone()));
            }
        }
        let resize = self.resize(leading, &lost, &back, &placed);
        let nothing = lost.is_empty() && back.is_empty() && placed.is_empty() && resize.is_none();
        let state = |rank: &u32| Some((*rank, leading.tracks.get(*rank as usize)?.state));
        let states = lost.iter().filter_map(state).collect();
        (!nothing).then(|| HostChange { version: list.version + 1, placed, lost, back, states, resize })
    }

    /// What the decider has to know of the hosts.
    pub(super) fn host_facts(&self, leading: &Leading) -> HostFacts {
        let free = |rank: &u32| leading.tracks.get(*rank as usize).is_some_and(|track| track.state.is_free());
        let resting = &self.membership.list.resting;
        let stands = |rank: &u32| !resting.contains(rank);
        let unfilled: Vec<u32> = leading.unsettled.iter().copied().filter(free).filter(stands).collect();
        let since = |rank: &u32| leading.tracks.get(*rank as usize).map(|track| track.since_ms);
        let losses = unfilled.iter().filter_map(|rank| leading.losses.get(rank)).cloned().collect();
        HostFacts {
            names: Arc::clone(&leading.names),
            ranks: Arc::clone(&leading.ranks),
            losses,
            unfilled_since_ms: unfilled
                .iter()
                .filter_map(since)
                .min()
                .map(|at_ms| self.clock.coordinator_ms(at_ms)),
            unfilled,
            filled_ms: self.filled_ms(leading),
            filled: Arc::clone(&leading.filled),
            resting: Arc::clone(&leading.resting),
            resized_ms: self.membership.list.resized_ms,
            shrinks: self.shrinks(leading),
            resizes: self.resizes(leading),
            grows: self.grows(leading),
            only: None,
            host_wait_ms: self.config.host_wait_ms,
            reserved: self.reserved_lives(),
        }
    }

    /// Finds other voters for those whose hosts were lost.
    pub(super) fn replace_voters(&mut self, leading: &Leading) {
        let list = &self.membership.list;
        let free = |rank: &u32| leading.tracks.get(*rank as usize).is_none_or(|track| track.state.is_over());
        let lost = |voter: &HostId| list.rank_of(*voter).is_none_or(|rank| free(&rank));
        let settled = self.voter.as_ref().and_then(|voter| voter.group.configuration());
        let ready = |voters: &Configuration| {
            // Two that vote never change by agreement what the state directory may have given to one of them.
            voters.number == list.configuration && !(list.breaks_ties() && voters.voters.len() == 2)
        };
        if settled.is_none_or(|settled| !ready(&settled)) {
            return;
        }
        if !list.voters.iter().any(lost) && list.voters.len() >= list.voters_wanted() {
            return;
        }
        let unfit = |rank: &u32| leading.tracks.get(*rank as usize).is_none_or(|track| !track.covered);
        let without = (0..list.len()).filter(unfit).collect();
        let kept: Vec<HostId> = list.voters.iter().copied().filter(|voter| !lost(voter)).collect();
        let mut voters = list.elect_voters(&without, &kept);
        // Who leads goes on leading. Fewer voters than before are no gain: those who are lost may come back.
        voters.sort_by_key(|voter| *voter != self.me.id);
        let replaces = voters.len() == list.voters.len() && list.voters.iter().any(lost);
        if voters.contains(&self.me.id) && (replaces || voters.len() > list.voters.len()) {
            let wanted = voters.iter().map(|voter| voter.0).collect();
            let begun = self.voter.as_mut().map(|voter| voter.group.reconfigure(wanted));
            if let Some(Err(problem @ NotLeader::Voters(_))) = begun {
                self.out.push(Effect::Note(format!("voters are not replaced: {problem}")));
            }
        }
    }
}
