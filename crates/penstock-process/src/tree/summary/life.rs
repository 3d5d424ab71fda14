//! What hosts say about one life of a gang: counts and first moments, which add up in any order.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::tree::rank_set::RankSet;
use crate::tree::summary::failures::FirstFailures;
use crate::tree::summary::progress::Progress;

/// Hosts that are prepared for a life.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Which.
    pub hosts: RankSet,
    /// Where rank 0 will listen; known by the host that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<SocketAddr>,
}

impl Prepared {
    /// With those of another.
    pub fn merge(&self, other: &Self) -> Self {
        Self { hosts: self.hosts.union(&other.hosts), meeting: least(self.meeting, other.meeting) }
    }
}

/// Something that hosts were told to do with their workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Hosts that did it and have processes left.
    pub hosts: u32,
    /// When the first did it, in the coordinator's time.
    pub first_ms: Option<u64>,
}

impl Told {
    fn is_nobody(&self) -> bool {
        *self == Self::default()
    }

    fn merge(self, other: Self) -> Self {
        Self { hosts: sum(self.hosts, other.hosts), first_ms: least(self.first_ms, other.first_ms) }
    }
}

/// Who failed first on its host, once all of the life is gone there and its logs were read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blame {
    /// It named a closed connection, so somebody else failed before.
    pub of_connection: bool,
    /// When it failed, in the coordinator's time.
    pub at_ms: u64,
    /// Its number among all ranks of its role.
    pub rank: u32,
    /// What a shell would show of it.
    pub code: i32,
    /// What happened to it, without its name.
    pub what: String,
    /// What it has in common with the same failure at another time.
    pub likeness: Option<String>,
}

/// One life of a gang, as some hosts see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LifeSummary {
    /// The newest life that these hosts have begun; nothing before the first.
    pub incarnation: Option<u32>,
    /// Which hosts.
    pub hosts: RankSet,
    /// Workers that they have, or should have.
    pub workers: u32,
    /// Workers that run.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: u32,
    /// Workers that wait for slots.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: u32,
    /// Workers that ended, by what a shell would show.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<i32, u32>,
    /// Workers that were lost with their agent, or never started by it.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u32,
    /// Living descendants of workers that are gone.
    #[serde(skip_serializing_if = "is_zero")]
    pub orphans: u32,
    /// Hosts with processes of the life.
    #[serde(skip_serializing_if = "is_zero")]
    pub alive: u32,
    /// What the life waits for; the first in the order of the alphabet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<String>,
    /// Hosts that are prepared for a later life, by its number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prepared: BTreeMap<u32, Prepared>,
    /// Workers were told to leave.
    #[serde(skip_serializing_if = "Told::is_nobody")]
    pub notified: Told,
    /// They were told that they may, for a life with more hosts.
    #[serde(skip_serializing_if = "Told::is_nobody")]
    pub leave: Told,
    /// They were sent what the person sent.
    #[serde(skip_serializing_if = "Told::is_nobody")]
    pub signalled: Told,
    /// They were sent SIGTERM.
    #[serde(skip_serializing_if = "Told::is_nobody")]
    pub ending: Told,
    /// They were sent SIGKILL.
    #[serde(skip_serializing_if = "Told::is_nobody")]
    pub killing: Told,
    /// Hosts on which everything of the life is gone and was looked at.
    #[serde(skip_serializing_if = "is_zero")]
    pub examined: u32,
    /// The shortest time from the beginning of the life to an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lived_ms: Option<u64>,
    /// Who failed first, of the hosts that looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<Blame>,
    /// Ranks that ended as they should not.
    #[serde(skip_serializing_if = "FirstFailures::is_empty")]
    pub failures: FirstFailures,
    /// Steps, and signs of hangs.
    #[serde(skip_serializing_if = "Progress::is_nothing")]
    pub progress: Progress,
}

impl LifeSummary {
    /// Whether another says the same, but for what changes as ranks make steps; a hang that is found is news.
    pub fn is_like(&self, other: &Self) -> bool {
        let without = |life: &Self| {
            let Progress { hang, stepped_ms, .. } = &life.progress;
            // The first step is news, and later ones are not.
            let stepped_ms = stepped_ms.map(|_| 0);
            let progress = Progress { hang: hang.clone(), stepped_ms, ..Progress::default() };
            Self { progress, ..life.clone() }
        };
        // Counts differ in most cases where anything does.
        let counts = |life: &Self| (life.incarnation, life.workers, life.running, life.alive, life.examined);
        counts(self) == counts(other) && (self == other || without(self) == without(other))
    }

    /// Workers that ended with success.
    pub fn succeeded(&self) -> u32 {
        self.ended.get(&0).copied().unwrap_or(0)
    }

    /// Workers that ended in any way.
    pub fn gone(&self) -> u32 {
        self.ended.values().copied().fold(self.lost, sum)
    }

    /// With what other hosts say about the same life.
    pub fn merge(mut self, other: &Self) -> Self {
        for (code, count) in &other.ended {
            let known = self.ended.entry(*code).or_default();
            *known = sum(*known, *count);
        }
        for (life, theirs) in &other.prepared {
            let known = self.prepared.entry(*life).or_default();
            *known = known.merge(theirs);
        }
        Self {
            incarnation: self.incarnation,
            hosts: self.hosts.union(&other.hosts),
            workers: sum(self.workers, other.workers),
            running: sum(self.running, other.running),
            waiting: sum(self.waiting, other.waiting),
            lost: sum(self.lost, other.lost),
            orphans: sum(self.orphans, other.orphans),
            alive: sum(self.alive, other.alive),
            queued: least(self.queued, other.queued.clone()),
            notified: self.notified.merge(other.notified),
            leave: self.leave.merge(other.leave),
            signalled: self.signalled.merge(other.signalled),
            ending: self.ending.merge(other.ending),
            killing: self.killing.merge(other.killing),
            examined: sum(self.examined, other.examined),
            lived_ms: least(self.lived_ms, other.lived_ms),
            blame: least(self.blame, other.blame.clone()),
            failures: self.failures.merge(&other.failures),
            progress: self.progress.merge(&other.progress),
            ended: self.ended,
            prepared: self.prepared,
        }
    }
}

/// The smaller of what is known.
pub(super) fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

pub(super) fn sum(one: u32, other: u32) -> u32 {
    one.saturating_add(other)
}

pub(super) fn is_zero(count: &u32) -> bool {
    *count == 0
}
