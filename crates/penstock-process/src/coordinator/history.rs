//! The history of a job as the coordinator knows it: the journal, folded line by line, and nothing else.
//!
//! So a coordinator that comes back knows what the old one knew (P4), and a person who reads the journal knows it too.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::coordinator::verdict::{Failure, Stop};
use crate::job::exit::Exit;
use crate::job::state::Phase;
use crate::job::{GangPlan, Job};

/// How a gang ended for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did what it should.
    Succeeded,
    /// It did not, and has no life left.
    Failed,
    /// Somebody asked.
    Stopped,
}

/// A life that may hang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// Which life.
    pub incarnation: u32,
    /// Counts the suspicions of a gang, from 1.
    pub number: u32,
    /// Who is to blame, where one is.
    pub rank: Option<u32>,
    /// In words.
    pub what: String,
    /// How far the life came.
    pub step: Option<u64>,
    /// When.
    pub at_ms: u64,
}

/// What became of a life that is to make room for one with more hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaveStep {
    /// Its ranks are asked to save and to leave.
    Asked,
    /// They do not: nobody looks for notices, or nobody left in time. Nothing is ended because of it.
    Stays,
    /// The first rank has left.
    Begun,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Entry {
    /// A life was ordered.
    Ordered {
        /// Which gang.
        gang: usize,
        /// Its number.
        incarnation: u32,
        /// Which slot each worker gets.
        placement: Vec<u32>,
        /// Why.
        reason: String,
        /// When, in a job of many hosts: they have a limit to prepare.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_ms: Option<u64>,
    },
    /// Every host is prepared for a life, so it may begin.
    Prepared {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// Where its rank 0 listens.
        meeting: Option<SocketAddr>,
        /// When.
        at_ms: u64,
    },
    /// A life has begun.
    Started {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// Its processes, in order of ranks.
        pids: Vec<i32>,
    },
    /// A worker ended.
    Exited {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// Which worker.
        rank: u32,
        /// Its process.
        pid: i32,
        /// How; nothing when it was lost with its agent.
        exit: Option<Exit>,
        /// When the agent noticed; the line itself may be written later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_ms: Option<u64>,
    },
    /// A life failed.
    Failed {
        /// Which gang.
        gang: usize,
        /// Which life, why, and what it is charged to.
        failure: Failure,
    },
    /// A life may hang, and nothing is ended because of it.
    Suspected {
        /// Which gang.
        gang: usize,
        /// Who, and why.
        suspicion: Suspicion,
    },
    /// What a life that ended has shown about its steps.
    Learned {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// Its longest time between two steps.
        longest_ms: u64,
    },
    /// A gang that seemed to hang gets more time.
    Patience {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// Its limits are so many times what they were at first.
        times: u32,
        /// Why.
        reason: String,
    },
    /// Ranks are asked to leave, because the next life has more hosts; what came of that.
    Leave {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// How far it is.
        leave: LeaveStep,
        /// Why.
        reason: String,
        /// When.
        at_ms: u64,
    },
    /// All of a failed life is gone, and this is what its failure looked like.
    Examined {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: u32,
        /// Equal for equal failures.
        likeness: Option<String>,
        /// How long the life was.
        #[serde(default)]
        lived_ms: Option<u64>,
    },
    /// Whom the failure of a life is charged to, now that more is known; takes the place of what was noted first.
    Blamed {
        /// Which gang.
        gang: usize,
        /// Which life, why, and what it is charged to.
        failure: Failure,
    },
    /// What was decided, for people. Starts and ends for good have entries of their own.
    Verdict {
        /// Which gang.
        gang: usize,
        /// Which life.
        incarnation: Option<u32>,
        /// What to do.
        action: String,
        /// Why.
        reason: String,
    },
    /// The job was started again and continues what stands before.
    Resumed {
        /// The first number of a life that no earlier start can have used.
        lives: u32,
        /// Numbers of lives below this are this start's.
        reserved: u32,
    },
    /// Somebody wants the job to end.
    Stop {
        /// Who, and how.
        stop: Stop,
    },
    /// A gang is over for good.
    Finished {
        /// Which gang.
        gang: usize,
        /// How.
        outcome: Outcome,
        /// Why.
        reason: String,
    },
    /// The job is over.
    Over {
        /// How.
        phase: Phase,
        /// Why.
        reason: String,
    },
}

/// What is remembered about one gang.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GangHistory {
    /// Its first rank.
    pub first: u32,
    /// The number of its first life in this start of the job.
    pub first_life: u32,
    /// The newest life that was ordered.
    pub incarnation: Option<u32>,
    /// Whether it was seen to have begun.
    pub started: bool,
    /// When it was ordered, in a job of many hosts.
    pub ordered_ms: Option<u64>,
    /// When every host was prepared for it, in a job of many hosts.
    pub prepared_ms: Option<u64>,
    /// Where its rank 0 listens, in a job of many hosts.
    pub meeting: Option<SocketAddr>,
    /// Which slot each worker has.
    pub placement: Vec<u32>,
    /// The first failure of every life that failed.
    pub failures: Vec<Failure>,
    /// The life whose failure was examined.
    pub examined: Option<u32>,
    /// Workers of the newest life that ended.
    pub exited: BTreeSet<u32>,
    /// How it ended for good.
    pub outcome: Option<Outcome>,
    /// The last verdict, so that one is written down once.
    pub verdict: Option<String>,
    /// When ranks of the newest life were asked to leave, and when the first did.
    pub leave: Option<(u64, Option<u64>)>,
    /// Why they were asked.
    pub leave_reason: String,
    /// They did not, and that was said.
    pub stays: bool,
    /// The newest suspicion that a life hangs.
    pub suspicion: Option<Suspicion>,
    /// The newest life of which it is known how long its steps took.
    pub learned: Option<u32>,
    /// The longest time between two steps of any life that ended.
    pub longest_ms: u64,
    /// Limits of hangs are so many times what they were at first.
    pub times: Option<u32>,
    /// How often each slot of the role was that of a worker that failed.
    pub charges: Vec<u32>,
    /// Why the newest life was ordered, or why there is no other.
    pub reason: String,
}

impl GangHistory {
    /// The failure of the newest life.
    pub fn failure(&self) -> Option<&Failure> {
        self.failures.iter().find(|failure| Some(failure.incarnation) == self.incarnation)
    }
}

/// What is remembered about a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobHistory {
    /// One for each gang of the job.
    pub gangs: Vec<GangHistory>,
    /// Somebody wants the job to end. That is not forgotten with the agent that was asked.
    pub stop: Option<Stop>,
    /// How the job ended.
    pub over: Option<Phase>,
    /// Numbers of lives below this are this start's, in a job that can be started again.
    pub reserved: Option<u32>,
    /// The reason of the last decision.
    pub reason: String,
}

impl JobHistory {
    /// Of a job that has not begun.
    pub fn new(job: &Job) -> Self {
        Self::of(job, &job.gangs())
    }

    /// Of these gangs of a job that has not begun.
    pub fn of(job: &Job, plans: &[GangPlan]) -> Self {
        let gangs = plans.iter().map(|plan| {
            let role = &job.roles[plan.role];
            let charges = vec![0; role.ranks as usize + role.spares as usize];
            GangHistory { first: plan.ranks.start, charges, ..GangHistory::default() }
        });
        let reason = "as asked for".to_owned();
        Self { gangs: gangs.collect(), stop: None, over: None, reserved: None, reason }
    }

    /// With what a journal adds. Lines of others, such as the agent's, and lines that were torn are passed over.
    pub fn read(mut self, journal: &[u8]) -> Self {
        let lines = journal.split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok()).for_each(|entry| self.fold(&entry));
        self
    }

    /// The first number of a life that no gang has used.
    pub fn lives(&self) -> u32 {
        let used = |history: &GangHistory| history.incarnation.map_or(history.first_life, |life| life + 1);
        self.gangs.iter().map(used).max().unwrap_or(0)
    }

    /// What an entry adds. An entry about a gang that is not there adds nothing.
    pub fn fold(&mut self, entry: &Entry) {
        match entry {
            Entry::Resumed { lives, reserved } => self.resume(*lives, *reserved),
            Entry::Stop { stop } => self.stop = Some(stop.clone()),
            Entry::Over { phase, reason } => {
                self.over = Some(*phase);
                self.reason.clone_from(reason);
            }
            Entry::Verdict { gang, action, reason, .. } => {
                self.reason.clone_from(reason);
                let said = format!("{action} {reason}");
                self.with(*gang, |history| history.verdict = Some(said));
            }
            Entry::Ordered { gang, incarnation, placement, reason, at_ms } => {
                self.reason.clone_from(reason);
                self.with(*gang, |history| {
                    history.incarnation = Some(*incarnation);
                    (history.started, history.stays, history.leave) = (false, false, None);
                    (history.ordered_ms, history.prepared_ms, history.meeting) = (*at_ms, None, None);
                    history.placement.clone_from(placement);
                    history.exited.clear();
                    history.reason.clone_from(reason);
                });
            }
            Entry::Prepared { gang, incarnation, meeting, at_ms } => self.with(*gang, |history| {
                if history.incarnation == Some(*incarnation) {
                    (history.prepared_ms, history.meeting) = (Some(*at_ms), *meeting);
                }
            }),
            Entry::Started { gang, incarnation, .. } => self.with(*gang, |history| {
                if history.incarnation < Some(*incarnation) {
                    // Its order did not fit on the disk.
                    history.incarnation = Some(*incarnation);
                    history.exited.clear();
                }
                history.started = true;
            }),
            Entry::Exited { gang, rank, .. } => self.with(*gang, |history| {
                history.exited.insert(*rank);
            }),
            Entry::Failed { gang, failure } => {
                self.reason.clone_from(&failure.what);
                self.with(*gang, |history| history.note_failure(failure));
            }
            Entry::Suspected { gang, suspicion } => self.with(*gang, |history| {
                history.suspicion = Some(suspicion.clone());
            }),
            Entry::Learned { gang, incarnation, longest_ms } => self.with(*gang, |history| {
                history.learned = Some(*incarnation);
                history.longest_ms = history.longest_ms.max(*longest_ms);
            }),
            Entry::Patience { gang, times, reason, .. } => {
                self.reason.clone_from(reason);
                self.with(*gang, |history| history.times = Some(*times));
            }
            Entry::Leave { .. } => self.note_leave(entry),
            Entry::Blamed { gang, failure } => {
                self.reason.clone_from(&failure.what);
                self.with(*gang, |history| history.blame(failure));
            }
            Entry::Examined { gang, incarnation, likeness, lived_ms } => {
                self.with(*gang, |history| history.examine(*incarnation, likeness.as_ref(), *lived_ms));
            }
            Entry::Finished { gang, outcome, reason } => {
                self.reason.clone_from(reason);
                self.with(*gang, |history| {
                    history.outcome = Some(*outcome);
                    history.reason.clone_from(reason);
                });
            }
        }
    }

    fn note_leave(&mut self, entry: &Entry) {
        let Entry::Leave { gang, incarnation, leave, reason, at_ms } = entry else { return };
        self.reason.clone_from(reason);
        self.with(*gang, |history| {
            if history.incarnation == Some(*incarnation) {
                history.note_leave(*leave, reason, *at_ms);
            }
        });
    }

    /// The job was started again.
    fn resume(&mut self, lives: u32, reserved: u32) {
        (self.stop, self.over, self.reserved) = (None, None, Some(reserved));
        self.gangs.iter_mut().for_each(|history| history.resume(lives));
    }

    fn with(&mut self, gang: usize, change: impl FnOnce(&mut GangHistory)) {
        if let Some(history) = self.gangs.get_mut(gang) {
            change(history);
        }
    }
}

impl GangHistory {
    fn examine(&mut self, incarnation: u32, likeness: Option<&String>, lived_ms: Option<u64>) {
        self.examined = Some(incarnation);
        let found = self.failures.iter_mut().find(|failure| failure.incarnation == incarnation);
        found.into_iter().for_each(|failure| {
            failure.likeness = likeness.cloned();
            failure.lived_ms = lived_ms;
        });
    }

    fn note_leave(&mut self, leave: LeaveStep, reason: &str, at_ms: u64) {
        match leave {
            LeaveStep::Asked => (self.leave, self.leave_reason) = (Some((at_ms, None)), reason.to_owned()),
            LeaveStep::Stays => self.stays = true,
            LeaveStep::Begun => {
                self.leave = self.leave.map(|(asked_ms, left_ms)| (asked_ms, left_ms.or(Some(at_ms))));
            }
        }
    }

    /// What was before is over, however it ended; budgets and numbers of lives continue.
    fn resume(&mut self, lives: u32) {
        let first_life = self.incarnation.map_or(0, |incarnation| incarnation + 1).max(lives);
        // Who did what it should begins another task, with fresh budgets.
        let done = self.outcome == Some(Outcome::Succeeded);
        *self = Self {
            first: self.first,
            first_life,
            failures: if done { Vec::new() } else { std::mem::take(&mut self.failures) },
            longest_ms: self.longest_ms,
            times: self.times,
            charges: vec![0; self.charges.len()],
            ..Self::default()
        };
    }

    fn note_failure(&mut self, failure: &Failure) {
        if self.failures.iter().any(|known| known.incarnation == failure.incarnation) {
            return;
        }
        let first = self.failures.partition_point(|known| known.incarnation < failure.incarnation);
        self.failures.insert(first, failure.clone());
        self.charge(failure.rank, 1);
    }

    /// Another is to blame for a failure that is known: its slot is charged instead.
    fn blame(&mut self, failure: &Failure) {
        let known = self.failures.iter().position(|known| known.incarnation == failure.incarnation);
        let Some(known) = known else { return self.note_failure(failure) };
        let before = std::mem::replace(&mut self.failures[known], failure.clone());
        self.charge(before.rank, -1);
        self.charge(failure.rank, 1);
    }

    fn charge(&mut self, rank: Option<u32>, change: i32) {
        let place = rank.and_then(|rank| rank.checked_sub(self.first));
        let slot = place.and_then(|place| self.placement.get(place as usize)).copied();
        if let Some(charge) = slot.and_then(|slot| self.charges.get_mut(slot as usize)) {
            *charge = charge.saturating_add_signed(change);
        }
    }
}

#[cfg(test)]
mod tests;
