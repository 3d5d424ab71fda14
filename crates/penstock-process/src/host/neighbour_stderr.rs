//! What ranks of other hosts wrote last to standard error, kept for the case that their host vanishes: a parent keeps it of its children,
//! and voters of whoever leads. It travels beside heartbeats, all of it whenever there is something new: 16 KiB at most, once a second.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::host::clock::HostClock;
use crate::host::messages::Body;
use crate::logs::stderr_tail::{RankStderr, StderrTail};
use crate::tree::host_list::HostId;
use crate::vote::storage::VoteStorage;

/// Hosts of which something is kept: all children, a leader, and some that were lost below.
const KEPT_MAX: usize = 128;

/// Of one other host.
#[derive(Debug)]
struct Neighbour {
    tail: StderrTail,
    clock: HostClock,
    told_ms: u64,
    /// It was passed on to those above.
    passed: bool,
}

/// What is kept, and what was told.
#[derive(Debug, Default)]
pub(super) struct NeighbourStderr {
    own: StderrTail,
    /// Counts changes of our own.
    version: u64,
    /// Which of them each host knows that keeps it for us.
    told: BTreeMap<HostId, u64>,
    kept: BTreeMap<HostId, Neighbour>,
}

impl NeighbourStderr {
    /// A host went elsewhere, where its own are kept.
    pub(super) fn forget(&mut self, host: HostId) {
        self.kept.remove(&host);
        self.told.remove(&host);
    }

    /// A host may not remember what we told it.
    pub(super) fn forget_told(&mut self, host: HostId) {
        self.told.remove(&host);
    }

    /// What ranks of a host wrote last.
    pub(super) fn of_host(&self, host: HostId) -> Option<&StderrTail> {
        self.kept.get(&host).map(|known| &known.tail)
    }

    /// What ranks of this host wrote last.
    pub(super) fn own(&self) -> &StderrTail {
        &self.own
    }

    /// Clocks of hosts that told theirs.
    pub(super) fn clocks(&self) -> impl Iterator<Item = (HostId, HostClock)> {
        self.kept.iter().map(|(host, known)| (*host, known.clock))
    }
}

impl<S: VoteStorage> Host<S> {
    /// What ranks here wrote, as the agent counts them, becomes what the job's ranks wrote.
    pub(super) fn note_own_stderr(&mut self, told: Vec<RankStderr>) {
        let Some(rank) = self.rank.filter(|_| !told.is_empty()) else { return };
        let firsts = self.standing(rank).first_ranks;
        for mut one in told {
            let Some(role) = self.job.roles.iter().position(|role| role.name == one.role) else { continue };
            one.rank += firsts.get(role).copied().unwrap_or(0);
            self.neighbours.own.add(one);
        }
        self.neighbours.version += 1;
    }

    /// What is known about the clock of this host.
    pub(super) fn own_clock(&self) -> HostClock {
        HostClock {
            offset_ms: self.clock.offset_ms(),
            within_ms: self.clock.within_ms(),
            wall_ms: self.wall_offset_ms(),
        }
    }

    /// Tells who keeps it for us what is new.
    pub(super) fn tell_stderr(&mut self, to: HostId) {
        let version = self.neighbours.version;
        if self.neighbours.own.is_empty() || self.neighbours.told.get(&to) == Some(&version) {
            return;
        }
        let (host, told, clock) = (self.me.id, self.neighbours.own.all(), self.own_clock());
        if self.say(to, Body::Stderr { host, told, clock }) {
            self.neighbours.told.insert(to, version);
        }
    }

    pub(super) fn hear_stderr(
        &mut self,
        from: HostId,
        host: HostId,
        told: Vec<RankStderr>,
        clock: HostClock,
    ) {
        let expected = self.below.has(from) || self.membership.leader == Some(from);
        if !expected || self.membership.list.rank_of(host).is_none() {
            return;
        }
        let kept = &mut self.neighbours.kept;
        if kept.len() >= KEPT_MAX && !kept.contains_key(&host) {
            let oldest = kept.iter().min_by_key(|(_, known)| known.told_ms).map(|(host, _)| *host);
            oldest.map(|host| kept.remove(&host));
        }
        let (tail, told_ms, passed) = (StderrTail::of(told), self.now_ms, from != host);
        kept.insert(host, Neighbour { tail, clock, told_ms, passed });
        if passed {
            self.tell_stderr_of(host);
        }
    }

    /// Passes on what lost children said, and who failed first of all below: so whoever leads has it, however far it is.
    pub(super) fn pass_stderr_on(&mut self) {
        if self.neighbours.kept.is_empty() || self.leading.is_some() {
            return;
        }
        let list = &self.membership.list;
        let lives = self.below.merged.gangs.iter().flat_map(|gang| &gang.lives);
        let first = lives.filter_map(|life| life.failures.first.first()).map(|failure| failure.host_rank);
        let failed: Vec<HostId> = first.filter_map(|rank| Some(list.host(rank)?.id)).collect();
        let wanted = |host: &HostId| failed.contains(host) || !self.below.is_heard(*host);
        let untold = self.neighbours.kept.iter().filter(|(host, known)| !known.passed && wanted(host));
        let untold: Vec<HostId> = untold.map(|(host, _)| *host).collect();
        untold.into_iter().for_each(|host| self.tell_stderr_of(host));
    }

    fn tell_stderr_of(&mut self, host: HostId) {
        let (Some(parent), Some(known)) = (self.upward.parent(), self.neighbours.kept.get_mut(&host)) else {
            return;
        };
        known.passed = true;
        let (told, clock) = (known.tail.all(), known.clock);
        if parent != host {
            self.say(parent, Body::Stderr { host, told, clock });
        }
    }
}
