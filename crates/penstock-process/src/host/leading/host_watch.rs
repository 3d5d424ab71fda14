//! Who is heard and who is not, as the leader knows it: losses, returns, places for hosts that join, and voters in place of lost ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::coordinator::view::{HostFacts, HostLoss};
use crate::host::leading::{JOINER_MS, Leading, VISIT_MS};
use crate::host::messages::{Body, JoinRequest};
use crate::host::voting::HostChange;
use crate::host::{Effect, Host};
use crate::job::Role;
use crate::lease::grant;
use crate::lease::host_state::{Fact, HostState};
use crate::tree::host_list::HostId;
use crate::vote::error::NotLeader;
use crate::vote::storage::VoteStorage;

impl<S: VoteStorage> Host<S> {
    /// Dials the place where hosts meet, while no host of the job is there: whoever is found there joins this job and founds no other.
    pub(super) fn visit_endpoint(&mut self, leading: &mut Leading) {
        let endpoint = self.config.endpoint;
        let list = &self.membership.list;
        let place = list.hosts.iter().position(|entry| entry.address == endpoint);
        let lost = |rank: usize| leading.tracks.get(rank).is_none_or(|track| track.state.is_over());
        if self.me.address != endpoint && place.is_none_or(lost) && self.now_ms >= leading.visit_ms {
            leading.visit_ms = self.now_ms + VISIT_MS;
            match self.links.at(endpoint).and_then(|link| self.links.host(link)) {
                Some(host) => drop(self.say(host, Body::List(Arc::clone(&self.membership.list)))),
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
        let ranks = |(role, about): (usize, &Role)| match role {
            0 => list.hosts.iter().map(|entry| entry.slots).collect(),
            _ => vec![about.ranks],
        };
        leading.known = list.version;
        leading.names = Arc::new(list.hosts.iter().map(|entry| entry.name.clone()).collect());
        leading.ranks = Arc::new(self.job.roles.iter().enumerate().map(ranks).collect());
    }

    /// Takes note of who is heard and who is not.
    pub(super) fn watch_hosts(&mut self, leading: &mut Leading) {
        let list = Arc::clone(&self.membership.list);
        let merged = Arc::clone(&self.below.merged);
        let end_ms = self.lease_end_ms.unwrap_or(self.now_ms);
        let slack_ms = grant::slack_ms(self.config.lease_ms);
        let unheard_ms = grant::unheard_ms(self.config.lease_ms);
        let goodbyes = std::mem::take(&mut leading.goodbyes);
        let ended = std::mem::take(&mut leading.ended);
        leading.look_ms = self.now_ms + self.heartbeat_ms();
        for (rank, track) in (0..list.len()).zip(&mut leading.tracks) {
            let covered = Some(rank) == self.rank || merged.hosts.contains(rank);
            if track.covered && !covered {
                track.lost_ms = self.now_ms;
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
                _ if self.now_ms >= track.expires_ms && self.now_ms < end_ms => Fact::LeaseOver,
                _ if self.now_ms >= track.lost_ms + unheard_ms => Fact::Silent,
                _ => {
                    leading.look_ms = leading.look_ms.min(track.lost_ms + unheard_ms);
                    continue;
                }
            };
            if !covered && !track.state.is_over() {
                leading.look_ms = leading.look_ms.min(track.expires_ms.max(self.now_ms + 1));
            }
            let Some(state) = track.state.after(fact) else { continue };
            self.out.push(Effect::Note(format!(
                "host rank {rank} ({}): {:?} → {state:?}",
                entry.name, track.state
            )));
            if state.is_free() && !track.state.is_free() {
                let said = |by: &BTreeMap<HostId, String>| by.get(&entry.id).cloned().unwrap_or_default();
                let what = match fact {
                    Fact::Goodbye => format!("left: {}", said(&goodbyes)),
                    Fact::SeenEnded => format!("is gone: {}", said(&ended)),
                    Fact::Stuck => "has processes that cannot be killed".to_owned(),
                    _ => {
                        let silent_s = (self.now_ms - track.lost_ms).div_ceil(1000);
                        format!("was not heard for {silent_s} s, and its lease expired")
                    }
                };
                let at_ms = self.clock.coordinator_ms(self.now_ms);
                // Of a host that is heard nobody else fails before it does.
                let lost_ms = if track.covered { self.now_ms } else { track.lost_ms };
                let heard_ms = self.clock.coordinator_ms(lost_ms);
                let loss = HostLoss { host_rank: rank, name: entry.name.clone(), what, heard_ms, at_ms };
                leading.losses.insert(rank, loss);
            } else if track.state.is_free() && !state.is_free() {
                leading.filled_ms = self.clock.coordinator_ms(self.now_ms);
                Arc::make_mut(&mut leading.filled).insert(rank, leading.filled_ms);
            }
            (track.state, track.since_ms) = (state, self.now_ms);
        }
    }

    /// Who lost a host rank, came back to it, or is given one.
    pub(super) fn change_of_hosts(&mut self, leading: &mut Leading) -> Option<HostChange> {
        let list = &self.membership.list;
        let free = |rank: &u32| leading.tracks.get(*rank as usize).is_some_and(|track| track.state.is_free());
        let lost: Vec<u32> =
            (0..list.len()).filter(|rank| free(rank) && !list.vacant.contains(rank)).collect();
        let back: Vec<u32> = list.vacant.iter().copied().filter(|rank| !free(rank)).collect();
        let now_ms = self.now_ms;
        leading.joiners.retain(|_, (_, at_ms)| now_ms < *at_ms + JOINER_MS);
        let mut placed = Vec::new();
        let mut taken: BTreeSet<HostId> = BTreeSet::new();
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
        let nothing = lost.is_empty() && back.is_empty() && placed.is_empty();
        let state = |rank: &u32| Some((*rank, leading.tracks.get(*rank as usize)?.state));
        let states = lost.iter().filter_map(state).collect();
        (!nothing).then(|| HostChange { version: list.version + 1, placed, lost, back, states })
    }

    /// What the decider has to know of the hosts.
    pub(super) fn host_facts(&self, leading: &Leading) -> HostFacts {
        let list = &self.membership.list;
        let free = |rank: &u32| leading.tracks.get(*rank as usize).is_some_and(|track| track.state.is_free());
        let unfilled: Vec<u32> = (0..list.len()).filter(free).collect();
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
            filled_ms: leading.filled_ms,
            filled: Arc::clone(&leading.filled),
            only: None,
            host_wait_ms: self.config.host_wait_ms,
        }
    }

    /// Finds other voters for those whose hosts were lost.
    pub(super) fn replace_voters(&mut self, leading: &Leading) {
        let list = &self.membership.list;
        let free = |rank: &u32| leading.tracks.get(*rank as usize).is_none_or(|track| track.state.is_over());
        let lost = |voter: &HostId| list.rank_of(*voter).is_none_or(|rank| free(&rank));
        let settled = self.voter.as_ref().and_then(|voter| voter.group.configuration());
        if settled.is_none_or(|settled| settled.number != list.configuration) {
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
