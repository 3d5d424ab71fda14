//! A host that leaves its job, which goes on elsewhere: its keeper was killed, or its engine wants it back.
//!
//! Kubernetes ends one pod by SIGTERM to it: a node is drained, a pod is evicted or preempted. That is no wish to stop the job. Ranks that
//! listen are asked to save, which takes all ranks of the job along; the others have nothing to gain by waiting. Then the host says goodbye, and
//! its host rank is free at once.

use crate::agent::stop::{SAVE_LOOK_MS, duration};
use crate::agent::{Agent, LOOK_MS};
use crate::coordinator::messages::Over;
use crate::job::state::Phase;
use crate::system::now_ms;

/// From the end of the last rank to ours: the last report is heard meanwhile.
const LEAVE_MS: u64 = 200;
/// Every pod has it.
const POD_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";

/// How far it is.
pub(super) struct Departure {
    why: String,
    /// Until when ranks may save before they are ended.
    save_by_ms: u64,
    /// Some rank has begun to save.
    save_seen: bool,
    /// When the host leaves, its ranks being gone.
    leave_ms: Option<u64>,
}

impl Departure {
    fn at_once(why: String) -> Self {
        Self { why, save_by_ms: 0, save_seen: false, leave_ms: None }
    }

    /// Why, once nobody of the job runs here.
    pub(super) fn told(&self) -> Option<String> {
        self.leave_ms.map(|_| self.why.clone())
    }
}

impl Agent {
    /// Without a keeper nobody would end what is left of us. A job of many hosts goes on without this one.
    pub(super) fn note_lost_keeper(&mut self) {
        let by = "the keeper was killed";
        match self.host.standing {
            None => self.fail_job(by.to_owned(), 1),
            Some(_) => self.ending.departure = Some(Departure::at_once(by.to_owned())),
        }
    }

    /// Whether a signal to the launcher is about this host alone; a second one is not.
    pub(super) fn is_told_to_leave(&self, signal: i32) -> bool {
        signal == libc::SIGTERM
            && self.host.standing.is_some()
            && self.ending.departure.is_none()
            && std::env::var_os(POD_VARIABLE).is_some()
    }

    /// Has ranks save, and then leaves.
    pub(super) fn leave_in_order(&mut self, why: &str) {
        let grace_ms = self.job.spec.roles.iter().map(|role| role.policy.stop_grace_ms).max().unwrap_or(0);
        self.give_save_notices(why);
        let saves = if self.listens() {
            format!("; its ranks may save for {}", duration(grace_ms))
        } else {
            String::new()
        };
        self.say(&format!("leaves the job because of {why}{saves}"));
        self.ending.departure =
            Some(Departure { save_by_ms: now_ms() + grace_ms, ..Departure::at_once(why.to_owned()) });
    }

    /// Leaves a job of many hosts once nobody of it runs here and the others could hear of that; when to look again.
    pub(super) fn keep_leaving(&mut self) -> Option<u64> {
        let (saves, listens) = (self.is_saving(), self.listens());
        let departure = self.ending.departure.as_mut()?;
        departure.save_seen |= saves;
        if listens && now_ms() < departure.save_by_ms && (saves || !departure.save_seen) {
            return Some(now_ms() + SAVE_LOOK_MS);
        }
        if !self.workers.running.is_empty() || self.workers.orphans_left > 0 {
            (0..self.job.plans.len()).for_each(|gang| self.kill_gang(gang));
            return Some(now_ms() + LOOK_MS);
        }
        let leave_ms = *departure.leave_ms.get_or_insert(now_ms() + LEAVE_MS);
        if now_ms() >= leave_ms {
            self.view.state.reason.clone_from(&departure.why);
            self.ending.over = Some(Over { phase: Phase::Failed, code: 1 });
        }
        Some(leave_ms)
    }
}
