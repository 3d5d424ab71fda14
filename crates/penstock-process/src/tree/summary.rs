//! What a subtree of hosts reports: counts, first failures and first moments instead of every worker.
//!
//! [`Summary::of_report`] makes the summary of one host, [`Summary::merge`] adds others. Merging is associative and commutative (H4):
//! whatever the tree and the order of arrival, counts, failures and histogram are the same. Decisions use nothing else. All moments are in
//! the coordinator's time.

pub mod failures;
pub mod life;
pub mod progress;
pub mod report;
pub mod steps;
pub mod troubles;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::failures::{FAILURES_MAX, FirstFailures, RankFailure};
pub use self::life::{Blame, LifeSummary, Prepared, Told};
pub use self::progress::{HangFinding, Progress, SlowFinding};
pub use self::report::HostPlace;
pub use self::steps::StepHistogram;
pub use self::troubles::Troubles;
use crate::coordinator::verdict::Stop;
use crate::tree::rank_set::RankSet;

/// What hosts say about one gang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GangSummary {
    /// By the newest life that a host has begun, in order.
    pub lives: Vec<LifeSummary>,
}

impl GangSummary {
    /// With what other hosts say.
    pub fn merge(mut self, other: &Self) -> Self {
        for theirs in &other.lives {
            match self.lives.binary_search_by_key(&theirs.incarnation, |known| known.incarnation) {
                Ok(place) => self.lives[place] = std::mem::take(&mut self.lives[place]).merge(theirs),
                Err(place) => self.lives.insert(place, theirs.clone()),
            }
        }
        self
    }
}

/// What a subtree of hosts says about a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The host ranks of the subtree.
    pub hosts: RankSet,
    /// Of these, hosts with processes that were killed long ago and are still there.
    #[serde(skip_serializing_if = "RankSet::is_empty")]
    pub stuck: RankSet,
    /// Of those, hosts on which nothing else of the job runs.
    #[serde(skip_serializing_if = "RankSet::is_empty")]
    pub quiet: RankSet,
    /// What people should mend.
    #[serde(skip_serializing_if = "Troubles::is_empty")]
    pub troubles: Troubles,
    /// A host is in it twice, so counts say too much; nothing is decided from it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overlapping: bool,
    /// By role; empty for a role whose ranks restart alone.
    pub gangs: Vec<GangSummary>,
    /// Ranks that restart alone, by role and by their number among all ranks of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alone: BTreeMap<usize, BTreeMap<u32, GangSummary>>,
    /// Somebody wants the job to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// How far the running ranks of all gangs are.
    #[serde(skip_serializing_if = "StepHistogram::is_empty")]
    pub steps: StepHistogram,
}

impl Summary {
    /// Whether another says the same, progress apart: ranks that make steps are no news.
    pub fn is_like(&self, other: &Self) -> bool {
        let same_gang = |(one, two): (&GangSummary, &GangSummary)| {
            let lives = one.lives.iter().zip(&two.lives);
            one.lives.len() == two.lives.len() && lives.into_iter().all(|(one, two)| one.is_like(two))
        };
        let names = |one: &Self| -> Vec<(usize, u32)> {
            let ranks = one.alone.iter().flat_map(|(role, ranks)| ranks.keys().map(|rank| (*role, *rank)));
            ranks.collect()
        };
        self.hosts == other.hosts
            && (&self.stuck, &self.quiet, &self.troubles) == (&other.stuck, &other.quiet, &other.troubles)
            && self.overlapping == other.overlapping
            && self.stop == other.stop
            && self.gangs.len() == other.gangs.len()
            && names(self) == names(other)
            && self.each().zip(other.each()).all(same_gang)
    }

    /// Forgets the lives of a host that has no rank any more, but for what still runs: they are no part of the next one.
    pub fn forget_past(&mut self) {
        for gang in &mut self.gangs {
            gang.lives.retain(|life| life.running + life.orphans > 0);
            gang.lives.iter_mut().for_each(|life| life.prepared.clear());
        }
    }

    /// Every gang, those of a role first.
    fn each(&self) -> impl Iterator<Item = &GangSummary> {
        self.gangs.iter().chain(self.alone.values().flat_map(BTreeMap::values))
    }

    /// With what another subtree says. Pure, associative and commutative.
    pub fn merge(mut self, other: &Self) -> Self {
        let overlapping = self.overlapping || other.overlapping || self.hosts.overlaps(&other.hosts);
        let count = self.gangs.len().max(other.gangs.len());
        self.gangs.resize_with(count, GangSummary::default);
        let mut gangs = self.gangs;
        for (mine, theirs) in gangs.iter_mut().zip(&other.gangs) {
            *mine = std::mem::take(mine).merge(theirs);
        }
        for (role, ranks) in &other.alone {
            let known = self.alone.entry(*role).or_default();
            for (rank, theirs) in ranks {
                let mine = known.entry(*rank).or_default();
                *mine = std::mem::take(mine).merge(theirs);
            }
        }
        Self {
            hosts: self.hosts.union(&other.hosts),
            alone: self.alone,
            stuck: self.stuck.union(&other.stuck),
            quiet: self.quiet.union(&other.quiet),
            troubles: self.troubles.merge(&other.troubles),
            overlapping,
            gangs,
            stop: merged_stop(self.stop, other.stop.as_ref()),
            steps: self.steps.merge(&other.steps),
        }
    }
}

/// One wish of two: the more urgent in each respect, in the words of a failure first.
pub fn merged_stop(one: Option<Stop>, other: Option<&Stop>) -> Option<Stop> {
    let (Some(one), Some(other)) = (&one, other) else { return one.or_else(|| other.cloned()) };
    let key = |stop: &Stop| (!stop.failed, stop.by.clone(), stop.code, stop.signal);
    let said = if key(one) <= key(other) { one } else { other };
    Some(Stop {
        by: said.by.clone(),
        code: said.code,
        signal: said.signal,
        failed: said.failed,
        grace_ms: one.grace_ms.min(other.grace_ms),
        save_ms: one.save_ms.min(other.save_ms),
        forced: one.forced || other.forced,
    })
}

#[cfg(test)]
mod tests;
