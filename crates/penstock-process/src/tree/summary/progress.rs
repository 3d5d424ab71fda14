//! What a summary says about progress: how far ranks are, and what each host found when it judged its own part.
//!
//! A host sees its own ranks only. So the leader takes a finding for a hang only where nothing on any other host excuses it: nobody is in a
//! phase without steps, nobody is held, and nobody works ([`crate::coordinator::hang`]).

use serde::{Deserialize, Serialize};

use crate::coordinator::hang::Hang;
use crate::tree::summary::life::{is_zero, least, sum};

/// A hang that a host found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HangFinding {
    /// A rank of this host is to blame, because its peers wait in a collective or are further.
    pub unproven: bool,
    /// Since when there is no step, in the coordinator's time.
    pub since_ms: u64,
    /// Who is to blame, among all ranks of its role.
    pub rank: Option<u32>,
    /// In words.
    pub what: String,
    /// Somebody chose the limit that is over.
    pub given: bool,
    /// The limit that is over.
    pub limit_ms: u64,
    /// A rank of this host is stopped alone, which is what was found.
    pub held: bool,
}

impl HangFinding {
    /// As the judge of one host would have said it.
    pub fn hang(&self) -> Hang {
        Hang {
            rank: self.rank,
            what: self.what.clone(),
            given: self.given,
            limit_ms: self.limit_ms,
            since_ms: self.since_ms,
        }
    }
}

/// A gang that needs more time, as a host found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlowFinding {
    /// The limits were so many times what they were at first.
    pub times: u32,
    /// In words.
    pub what: String,
}

/// How far the ranks of a life are, and whether somebody may hang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The furthest step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// When the first step was reported, or a later one where nobody looked before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stepped_ms: Option<u64>,
    /// The longest time between two steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// Somebody looks for notices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub listens: bool,
    /// Somebody is saving.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub saving: bool,
    /// Somebody is in a phase without steps.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub busy: bool,
    /// Somebody is held, through no fault of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// A host wants stacks before it judges.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub look: bool,
    /// When somebody last showed work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
    /// Hosts with processes whose stacks were not taken.
    #[serde(skip_serializing_if = "is_zero")]
    pub unwitnessed: u32,
    /// The newest suspicion that people were told on every host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warned: Option<u32>,
    /// The best founded of what was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang: Option<HangFinding>,
    /// A gang that would hang again, but moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowFinding>,
}

impl Progress {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// With that of other hosts.
    pub fn merge(self, other: &Self) -> Self {
        Self {
            step: self.step.max(other.step),
            stepped_ms: least(self.stepped_ms, other.stepped_ms),
            longest_ms: self.longest_ms.max(other.longest_ms),
            listens: self.listens || other.listens,
            saving: self.saving || other.saving,
            busy: self.busy || other.busy,
            held: self.held || other.held,
            look: self.look || other.look,
            worked_ms: self.worked_ms.max(other.worked_ms),
            unwitnessed: sum(self.unwitnessed, other.unwitnessed),
            warned: least(self.warned, other.warned),
            hang: least(self.hang, other.hang.clone()),
            slow: least(self.slow, other.slow.clone()),
        }
    }
}
