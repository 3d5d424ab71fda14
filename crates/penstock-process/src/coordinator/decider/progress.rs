//! Whether a gang makes progress: what is written down about hangs, suspicions and patience.
//!
//! A hang ends a life where somebody asked for that, by a limit or by restarts. Otherwise it is a suspicion: people are told, with
//! stacks, and nothing is ended, because a supervision that ends a healthy run is worse than none.

use crate::coordinator::decider::Decider;
use crate::coordinator::hang::{Case, Judgement, Past, TIMES_MAX, judge};
use crate::coordinator::history::{Entry, Suspicion};
use crate::coordinator::verdict::Failure;
use crate::coordinator::view::GangView;
use crate::job::policy::Cause;
use crate::tree::summary::report::suspects;

/// Suspicions of a gang that people are told; more say nothing new.
const SUSPICIONS_MAX: u32 = 100;

impl Decider {
    /// What is to be done about the progress of a gang; nothing where nobody looks for hangs, or it is being ended.
    pub(super) fn judgement(&self, gang: usize, about: &GangView<'_>, now_ms: u64) -> Option<Judgement> {
        let rule = self.job.roles[self.plans[gang].role].policy.hang.as_ref()?;
        if about.notified_since_ms.or(about.ending_since_ms).is_some() || about.queued.is_some() {
            return None;
        }
        let past = self.past(gang);
        let Some(local) = about.local else { return Some(found_by_hosts(about, &past, now_ms)) };
        let suspects = suspects(local, |rank| rank);
        let (patience, looks) = (&local.patience, &local.looks);
        Some(judge(&Case { now_ms, suspects: &suspects, patience, looks, rule, past }))
    }

    /// What earlier lives and verdicts say.
    pub(super) fn past(&self, gang: usize) -> Past {
        let history = &self.history.gangs[gang];
        let before =
            history.failures.iter().rev().find(|failure| Some(failure.incarnation) < history.incarnation);
        let suspicion =
            history.suspicion.as_ref().filter(|known| Some(known.incarnation) == history.incarnation);
        Past {
            longest_ms: history.longest_ms,
            times: history.times.unwrap_or(1),
            hung_at: before.filter(|failure| failure.cause == Cause::Hang).and_then(|failure| failure.step),
            warned_ms: suspicion.map(|suspicion| suspicion.at_ms),
        }
    }

    /// Takes note of a hang: a failure where it ends the life, else a suspicion.
    pub(super) fn watch_progress(
        &mut self,
        gang: usize,
        incarnation: u32,
        about: &GangView<'_>,
        now_ms: u64,
    ) {
        let step = about.step;
        match self.judgement(gang, about, now_ms) {
            Some(Judgement::Hung(hang)) => {
                let policy = &self.job.roles[self.plans[gang].role].policy;
                if hang.given || policy.hang.as_ref().is_some_and(|rule| rule.given) || policy.budget.hang > 0
                {
                    let (what, cause, rank) = (hang.what, Cause::Hang, hang.rank);
                    let failure = Failure {
                        incarnation,
                        what,
                        cause,
                        rank,
                        code: 1,
                        likeness: None,
                        lived_ms: None,
                        step,
                        at_ms: now_ms,
                    };
                    self.note(Entry::Failed { gang, failure });
                    return;
                }
                let number = self.history.gangs[gang].suspicion.as_ref().map_or(1, |known| known.number + 1);
                if number <= SUSPICIONS_MAX {
                    let (rank, what) = (hang.rank, hang.what);
                    let suspicion = Suspicion { incarnation, number, rank, what, step, at_ms: now_ms };
                    self.note(Entry::Suspected { gang, suspicion });
                }
            }
            Some(Judgement::Slow(reason)) => {
                let times = (self.past(gang).times * 2).min(TIMES_MAX);
                self.note(Entry::Patience { gang, incarnation, times, reason });
            }
            _ => {}
        }
    }

    /// Takes note of what a life that failed has shown about its steps, once.
    pub(super) fn learn(&mut self, gang: usize, about: &GangView<'_>) {
        let history = &self.history.gangs[gang];
        let failed = history.failure().map(|failure| failure.incarnation);
        let Some(incarnation) =
            failed.filter(|life| Some(*life) == about.incarnation && failed != history.learned)
        else {
            return;
        };
        if let Some(longest_ms) = about.longest_ms {
            self.note(Entry::Learned { gang, incarnation, longest_ms });
        }
    }

    /// What people have not been told yet.
    pub(super) fn untold(&self, gang: usize, about: &GangView<'_>) -> Option<&Suspicion> {
        let suspicion = self.history.gangs[gang].suspicion.as_ref()?;
        (Some(suspicion.incarnation) == about.incarnation && about.warned < suspicion.number)
            .then_some(suspicion)
    }
}

/// What the hosts of a job say together: each has judged its own part, and what others do may excuse it.
fn found_by_hosts(about: &GangView<'_>, past: &Past, now_ms: u64) -> Judgement {
    let progress = &about.progress;
    let told = |since_ms: u64| past.warned_ms.is_some_and(|warned_ms| since_ms <= warned_ms);
    if let Some(finding) = progress.hang.as_ref().filter(|finding| !told(finding.since_ms)) {
        let worked = progress.worked_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(finding.limit_ms));
        let excused = progress.busy || (worked && !finding.given);
        if finding.held || (!excused && !progress.held) {
            return Judgement::Hung(finding.hang());
        }
    }
    match &progress.slow {
        Some(slow) if slow.times == past.times && !progress.busy => Judgement::Slow(slow.what.clone()),
        _ if progress.look => Judgement::Look,
        _ => Judgement::Fine(None),
    }
}

#[cfg(test)]
mod tests;
