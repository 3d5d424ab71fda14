//! A life that makes room for one with more hosts: its ranks are asked to save and to leave, and nobody is ended who does not.
//!
//! A rank that leaves says so with exit code 75. When the first has left, the others have as long as a stop gives them; what is left then
//! is ended like the rest of any life that failed. Where nobody looks for notices, or nobody leaves in time, that is said once, and the
//! gang grows at its next restart.

use crate::coordinator::decider::{Decider, about};
use crate::coordinator::history::{Entry, LeaveStep};
use crate::coordinator::verdict::{Action, Failure, Verdict};
use crate::coordinator::view::{GangView, JobView};
use crate::job::policy::Cause;

/// How old a life is at least whose ranks are said not to look for notices: they may be loading yet.
const DEAF_MS: u64 = 30_000;

impl Decider {
    /// Takes note of lives that are to make room, and of what came of that.
    pub(super) fn take_note_of_growth(&mut self, view: &JobView<'_>) {
        let Some(hosts) = &view.hosts else { return };
        let deaf = !view.gangs.iter().any(|about| about.listens);
        for gang in 0..self.plans.len() {
            let about = about(view, gang);
            let history = &self.history.gangs[gang];
            let Some(incarnation) = history.incarnation.filter(|_| self.runs(gang, view)) else { continue };
            let prepared_ms = history.prepared_ms.unwrap_or(view.now_ms);
            let step = match (history.leave, &hosts.grows) {
                (Some((asked_ms, left_ms)), _) => {
                    self.after_the_request(gang, about, view, asked_ms, left_ms)
                }
                (None, _) if self.others_left() => {
                    // It cannot go on with its size when a neighbour has another.
                    let why = "the number of hosts changes".to_owned();
                    self.note_left(gang, about, view.now_ms, why);
                    None
                }
                (None, Some(why)) if about.listens => {
                    Some((LeaveStep::Asked, format!("asked to save and leave: the job {why}")))
                }
                (None, Some(why)) if deaf && !history.stays && view.now_ms >= prepared_ms + DEAF_MS => {
                    let reason = format!(
                        "the job {why} at its next restart: no rank looks for notices, so none can be asked to save"
                    );
                    Some((LeaveStep::Stays, reason))
                }
                (None, _) => None,
            };
            if let Some((leave, reason)) = step {
                self.note(Entry::Leave { gang, incarnation, leave, reason, at_ms: view.now_ms });
            }
        }
    }

    /// What becomes of a life whose ranks were asked.
    fn after_the_request(
        &mut self,
        gang: usize,
        about: &GangView<'_>,
        view: &JobView<'_>,
        asked_ms: u64,
        left_ms: Option<u64>,
    ) -> Option<(LeaveStep, String)> {
        let policy = &self.job.roles[self.plans[gang].role].policy;
        let (grace_ms, save_ms) = (policy.stop_grace_ms, policy.save_grace_ms.max(policy.stop_grace_ms));
        let left = about.running + about.unheard + about.unbegun;
        let what = || "its ranks saved and left for another number of hosts".to_owned();
        match left_ms {
            _ if about.gone == 0 => {
                let late = view.now_ms >= asked_ms.saturating_add(save_ms) && !about.saving;
                let stays = late && !self.history.gangs[gang].stays;
                stays.then(|| {
                    let reason = format!(
                        "no rank has left {} s after they were asked; the job grows at its next restart",
                        save_ms / 1000
                    );
                    (LeaveStep::Stays, reason)
                })
            }
            _ if left == 0 => {
                self.note_left(gang, about, view.now_ms, what());
                None
            }
            None => Some((LeaveStep::Begun, "the first rank has left".to_owned())),
            Some(left_ms) => {
                let limit_ms = if about.saving { save_ms } else { grace_ms };
                if view.now_ms >= left_ms.saturating_add(limit_ms) {
                    let why =
                        format!("{}; {left} of them were still there {} s later", what(), limit_ms / 1000);
                    self.note_left(gang, about, view.now_ms, why);
                }
                None
            }
        }
    }

    /// What a gang is told that was asked to leave.
    pub(super) fn asked_to_leave(&self, gang: usize, view: &JobView<'_>, verdict: Verdict) -> Verdict {
        let (about, history) = (about(view, gang), &self.history.gangs[gang]);
        let Some((asked_ms, left_ms)) = history.leave.filter(|_| self.runs(gang, view)) else {
            return verdict;
        };
        if about.leave_since_ms.is_none() {
            return Verdict { action: Action::Leave, reason: history.leave_reason.clone() };
        }
        let policy = &self.job.roles[self.plans[gang].role].policy;
        let save_ms = policy.save_grace_ms.max(policy.stop_grace_ms);
        let until_ms = match left_ms {
            None if history.stays => None,
            None => Some(asked_ms.saturating_add(save_ms)),
            Some(left_ms) => Some(left_ms.saturating_add(policy.stop_grace_ms)),
        };
        let until_ms = until_ms.map(|until_ms| until_ms.max(view.now_ms + 100));
        Verdict { action: Action::Wait { until_ms }, ..verdict }
    }

    /// Whether all of a life has begun and nothing has ended it yet.
    fn runs(&self, gang: usize, view: &JobView<'_>) -> bool {
        let (about, history) = (about(view, gang), &self.history.gangs[gang]);
        let open = history.outcome.is_none() && history.failure().is_none() && self.history.stop.is_none();
        open && history.prepared_ms.is_some()
            && about.incarnation == history.incarnation
            && about.unbegun == 0
            && !about.done
    }

    /// Whether another gang has left already.
    fn others_left(&self) -> bool {
        let left = |failure: &Failure| failure.cause == Cause::Resize;
        self.history
            .gangs
            .iter()
            .any(|history| history.outcome.is_none() && history.failure().is_some_and(left))
    }

    fn note_left(&mut self, gang: usize, about: &GangView<'_>, at_ms: u64, what: String) {
        let Some(incarnation) = self.history.gangs[gang].incarnation else { return };
        let failure = Failure {
            incarnation,
            what,
            cause: Cause::Resize,
            rank: None,
            code: 1,
            likeness: None,
            lived_ms: None,
            step: about.step,
            at_ms,
        };
        self.note(Entry::Failed { gang, failure });
    }
}
