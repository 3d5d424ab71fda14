//! What to do with a gang, decided purely (P1): from the time, the gang's state and its policy, with a reason.
//!
//! The coordinator asks after everything that happens, and the agent does what it is told. Nothing here reads a clock or a
//! process, so every rule is tested without starting one.

use serde::{Deserialize, Serialize};

use crate::job::Kind;
use crate::job::policy::{Cause, LIVES_MAX, Policy};

/// Processes that are still there this long after SIGKILL sleep in the kernel; the job does not wait for them.
pub const UNKILLABLE_MS: u64 = 5000;
/// How long stacks may take that are wanted before a hang is ended.
pub const WITNESS_MS: u64 = 15_000;
/// A scheduler that wants its machine back signals job and workers within this time, in any order.
pub const TOLD_TOGETHER_MS: u64 = 2000;
/// A life that was not longer has done nothing but start.
pub const START_MS: u64 = 3000;
/// Workers that look for notices get a signal when this share of their time is over; those who got one get SIGTERM then.
const NOTICE_SHARE: f64 = 0.7;
/// From one signal to the next one, of those who have had a notice.
const LAST_SHARE: f64 = 0.15;
/// How often a save that puts off the end is looked at.
const SAVE_LOOK_MS: u64 = 100;

/// Why a life failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which life it ended.
    pub incarnation: u32,
    /// What happened, in words: `rank 3 was killed by SIGKILL`.
    pub what: String,
    /// What it is charged to.
    pub cause: Cause,
    /// Who failed first, where that is known.
    pub rank: Option<u32>,
    /// What a shell would show of it.
    pub code: i32,
    /// What it has in common with the same failure at another time: the last line of a traceback, for one. Without
    /// such evidence two failures are never the same.
    pub likeness: Option<String>,
    /// How long the life was, where that is known.
    #[serde(default)]
    pub lived_ms: Option<u64>,
    /// How far this life came.
    pub step: Option<u64>,
    /// When it was noticed.
    pub at_ms: u64,
}

impl Failure {
    /// Whether SIGTERM ended it so shortly ago that whoever sent it may be about to tell the job as well.
    pub fn may_be_preemption(&self, now_ms: u64) -> bool {
        let terminated = self.cause == Cause::Crash && self.code == 128 + libc::SIGTERM;
        terminated && now_ms < self.at_ms.saturating_add(TOLD_TOGETHER_MS)
    }

    /// Whether another life ended in the same way at the same place. Where steps are not known, only lives that never came beyond their
    /// start ended at the same place.
    fn is_like(&self, other: &Self) -> bool {
        let short = |failure: &Self| failure.lived_ms.is_some_and(|lived_ms| lived_ms <= START_MS);
        let place = match (self.step, other.step) {
            (Some(step), Some(other)) => step == other,
            (None, None) => short(self) && short(other),
            _ => false,
        };
        place && self.likeness.is_some() && self.likeness == other.likeness
    }
}

/// Somebody wants a gang to end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Who, in words: `SIGINT from the terminal`.
    pub by: String,
    /// Until SIGKILL.
    pub grace_ms: u64,
    /// Not even that long.
    pub forced: bool,
    /// What the job exits with.
    pub code: i32,
    /// The stop is a failure: the keeper is gone, or the command cannot be started.
    pub failed: bool,
    /// What the person sent, for workers that do not look for notices; 0 is SIGTERM.
    #[serde(default)]
    pub signal: i32,
    /// How long a save may put off the end.
    #[serde(default)]
    pub save_ms: u64,
}

impl Stop {
    /// The signal of a person that is not SIGTERM, which comes later in any case.
    fn own_signal(&self) -> Option<i32> {
        Some(self.signal).filter(|signal| !matches!(*signal, 0 | libc::SIGTERM))
    }
}

/// What is known about a gang at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    /// What it is for.
    pub kind: Kind,
    /// Which life this is, from 0. Nothing before the first.
    pub incarnation: Option<u32>,
    /// The number of the first; more than 0 in a job that was started again.
    pub first_life: u32,
    /// The life was ordered, but is not begun: it waits for slots, and for which.
    pub queued: Option<String>,
    /// What it has to wait for before its first life.
    pub waits_for: Option<String>,
    /// Workers that run.
    pub running: u32,
    /// Workers that ended with success.
    pub succeeded: u32,
    /// Living descendants of workers that are gone.
    pub orphans: u32,
    /// The first failure of every life that failed, in order.
    pub failures: Vec<Failure>,
    /// Somebody wants it to end.
    pub stop: Option<Stop>,
    /// Whether any worker looks for notices.
    pub listens: bool,
    /// Whether any worker is saving.
    pub saving: bool,
    /// Stacks were taken in this life.
    pub witnessed: bool,
    /// When workers were told that they have to leave.
    pub notified_since_ms: Option<u64>,
    /// When the workers were sent what the person sent.
    pub signalled_since_ms: Option<u64>,
    /// When the workers were sent SIGTERM.
    pub ending_since_ms: Option<u64>,
    /// When everybody was first sent SIGKILL.
    pub killing_since_ms: Option<u64>,
}

impl Gang {
    /// Before its first life.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            incarnation: None,
            first_life: 0,
            queued: None,
            waits_for: None,
            running: 0,
            succeeded: 0,
            orphans: 0,
            failures: Vec::new(),
            stop: None,
            listens: false,
            saving: false,
            witnessed: false,
            notified_since_ms: None,
            signalled_since_ms: None,
            ending_since_ms: None,
            killing_since_ms: None,
        }
    }
}

/// What the agent is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Action {
    /// Nothing, until something happens or this moment.
    Wait {
        /// When to ask again at the latest.
        until_ms: Option<u64>,
    },
    /// Make ready what the next life needs and start nothing, in a job of many hosts.
    Prepare {
        /// The number of the new life.
        incarnation: u32,
    },
    /// Start every worker of the gang.
    Start {
        /// The number of the new life.
        incarnation: u32,
    },
    /// Tell the workers to save and leave.
    Notify {
        /// When they get a signal, which ends who does not catch it.
        deadline_ms: u64,
        /// When they get it at the latest, as long as they are saving.
        #[serde(default)]
        save_by_ms: u64,
        /// For those who do not look for notices; 0 for nothing.
        #[serde(default)]
        signal: i32,
    },
    /// Tell the workers to save and leave, and end nobody who does not: the next life has more hosts.
    Leave,
    /// Send the workers what the person sent.
    Interrupt {
        /// Which signal.
        signal: i32,
    },
    /// Take the stacks of all workers, because one may hang; nothing is decided yet.
    Look,
    /// Tell people that the gang may hang, and end nothing.
    Warn,
    /// Take the stacks of all workers, before they are ended.
    Witness,
    /// Send SIGTERM to the workers.
    End,
    /// Send SIGKILL to the whole tree of the gang.
    Kill,
    /// The gang did what it should.
    Succeed,
    /// The gang is over without success.
    Fail,
    /// The gang is over because somebody asked.
    Stopped,
}

/// What to do, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// For the agent.
    pub action: Action,
    /// For people, and for the journal.
    pub reason: String,
}

impl Verdict {
    fn new(action: Action, reason: impl Into<String>) -> Self {
        Self { action, reason: reason.into() }
    }
}

/// What to do with the gang now.
pub fn decide(now_ms: u64, gang: &Gang, policy: &Policy) -> Verdict {
    let Some(incarnation) = gang.incarnation else { return before_the_first(gang) };
    if let Some(what) = &gang.queued {
        return while_queued(gang, what);
    }
    let failure = gang.failures.iter().find(|failure| failure.incarnation == incarnation);
    let given_up = gang.killing_since_ms.is_some_and(|since| now_ms >= since.saturating_add(UNKILLABLE_MS));
    let alive = gang.running + gang.orphans;
    if alive > 0 && !given_up {
        return while_alive(now_ms, gang, policy, failure);
    }
    let mut verdict = match (&gang.stop, failure) {
        (Some(stop), _) => Verdict::new(Action::Stopped, format!("stopped by {}", stop.by)),
        (None, Some(failure)) => after_failure(now_ms, incarnation, &gang.failures, policy, failure),
        (None, None) if gang.running > 0 => Verdict::new(Action::Fail, "the end of a gang"),
        (None, None) => Verdict::new(Action::Succeed, format!("all {} ranks succeeded", gang.succeeded)),
    };
    if alive > 0 {
        verdict.reason += &format!("; {alive} processes sleep in the kernel and cannot be killed");
    }
    verdict
}

fn before_the_first(gang: &Gang) -> Verdict {
    match (&gang.stop, &gang.waits_for) {
        (Some(stop), _) => Verdict::new(Action::Stopped, format!("stopped by {}", stop.by)),
        (None, Some(what)) => Verdict::new(Action::Wait { until_ms: None }, format!("waits for {what}")),
        (None, None) => {
            let incarnation = gang.first_life;
            let reason = match incarnation.checked_sub(1) {
                None => "as asked for".to_owned(),
                Some(before) => format!("started again; lives up to {before} belong to earlier starts"),
            };
            Verdict::new(Action::Start { incarnation }, reason)
        }
    }
}

/// A life that is queued has no processes, so a stop is immediate.
fn while_queued(gang: &Gang, what: &str) -> Verdict {
    match &gang.stop {
        Some(stop) => Verdict::new(Action::Stopped, format!("stopped by {}", stop.by)),
        None => Verdict::new(Action::Wait { until_ms: None }, format!("waits for {what}")),
    }
}

fn while_alive(now_ms: u64, gang: &Gang, policy: &Policy, failure: Option<&Failure>) -> Verdict {
    let (why, grace_ms) = match (&gang.stop, failure) {
        (Some(stop), _) if stop.forced => {
            return Verdict::new(Action::Kill, format!("forced by {}", stop.by));
        }
        (Some(stop), _) => (format!("stop asked for by {}", stop.by), stop.grace_ms),
        (None, Some(failure)) => (failure.what.clone(), policy.failure_grace_ms),
        (None, None) if gang.running == 0 => ("no rank is left".to_owned(), policy.failure_grace_ms),
        (None, None) => {
            let reason = format!("{} ranks run, {} succeeded", gang.running, gang.succeeded);
            return Verdict::new(Action::Wait { until_ms: None }, reason);
        }
    };
    if let Some(verdict) = before_the_end(now_ms, gang, failure, &why) {
        return verdict;
    }
    // The time runs from the first that the workers were told.
    let told = gang.notified_since_ms.or(gang.signalled_since_ms).filter(|_| gang.stop.is_some());
    let Some(since) = told.or(gang.ending_since_ms) else { return Verdict::new(Action::End, why) };
    // A save may have taken all of it; then a little is left for the end.
    let least_ms = gang
        .ending_since_ms
        .filter(|_| told.is_some())
        .map_or(0, |at_ms| at_ms + share(grace_ms, LAST_SHARE));
    let kill_at_ms = since.saturating_add(grace_ms).max(least_ms);
    if now_ms >= kill_at_ms && gang.ending_since_ms.is_some() {
        return Verdict::new(
            Action::Kill,
            format!("{why}; {grace_ms} ms after they were asked to leave, some are still there"),
        );
    }
    if gang.ending_since_ms.is_none() {
        return Verdict::new(Action::End, why);
    }
    Verdict::new(Action::Wait { until_ms: Some(kill_at_ms) }, why)
}

fn share(grace_ms: u64, share: f64) -> u64 {
    (grace_ms as f64 * share) as u64
}

/// What has to happen before SIGTERM: stacks of a hang, and the time to leave for those who look for notices.
fn before_the_end(now_ms: u64, gang: &Gang, failure: Option<&Failure>, why: &str) -> Option<Verdict> {
    if gang.ending_since_ms.is_some() || gang.killing_since_ms.is_some() {
        return None;
    }
    if let Some(hang) = failure.filter(|failure| failure.cause == Cause::Hang) {
        let until_ms = hang.at_ms.saturating_add(WITNESS_MS);
        if !gang.witnessed && now_ms < until_ms {
            return Some(Verdict::new(Action::Witness, why));
        }
    }
    let stop = gang.stop.as_ref().filter(|_| gang.running > 0)?;
    before_sigterm(now_ms, gang, stop, why)
}

/// The time that workers have before SIGTERM: to hear a notice, to finish a save, and to answer what the person sent.
fn before_sigterm(now_ms: u64, gang: &Gang, stop: &Stop, why: &str) -> Option<Verdict> {
    let wait = |until_ms: u64| Some(Verdict::new(Action::Wait { until_ms: Some(until_ms) }, why));
    let notice_ms = share(stop.grace_ms, NOTICE_SHARE);
    let saving = gang.saving && stop.save_ms > 0;
    if gang.notified_since_ms.is_none() && (gang.listens || saving) {
        let signal = stop.own_signal().filter(|_| !saving).unwrap_or(0);
        let (deadline_ms, save_by_ms) =
            (now_ms.saturating_add(notice_ms), now_ms.saturating_add(stop.save_ms));
        return Some(Verdict::new(Action::Notify { deadline_ms, save_by_ms, signal }, why));
    }
    if let Some(since) = gang.notified_since_ms {
        let save_by_ms = since.saturating_add(stop.save_ms);
        if saving && now_ms < save_by_ms {
            // The end of a save wakes nobody.
            return wait(save_by_ms.min(now_ms.saturating_add(SAVE_LOOK_MS)));
        }
        let heard_ms = since.saturating_add(notice_ms);
        if gang.listens && now_ms < heard_ms {
            return wait(heard_ms);
        }
    }
    let signal = stop.own_signal()?;
    let Some(since) = gang.signalled_since_ms else {
        return Some(Verdict::new(Action::Interrupt { signal }, why));
    };
    // Who had a notice has had most of the time.
    let left = if gang.notified_since_ms.is_some() { LAST_SHARE } else { NOTICE_SHARE };
    let end_at_ms = since.saturating_add(share(stop.grace_ms, left));
    if now_ms < end_at_ms { wait(end_at_ms) } else { None }
}

fn after_failure(
    now_ms: u64,
    incarnation: u32,
    failures: &[Failure],
    policy: &Policy,
    failure: &Failure,
) -> Verdict {
    let what = &failure.what;
    if failure.cause == Cause::Resize && incarnation + 1 < LIVES_MAX {
        return Verdict::new(Action::Start { incarnation: incarnation + 1 }, what);
    }
    if failure.may_be_preemption(now_ms) {
        let until_ms = Some(failure.at_ms.saturating_add(TOLD_TOGETHER_MS));
        return Verdict::new(
            Action::Wait { until_ms },
            format!("{what}; the job may be told to leave as well"),
        );
    }
    let (spent, in_a_row) = charged(failures, policy.refill_steps, failure.cause);
    let allowed = policy.budget.of(failure.cause);
    if spent > allowed || incarnation + 1 >= LIVES_MAX {
        let spent = match allowed {
            0 => "no restarts were asked for".to_owned(),
            max => format!("all {max} restarts are spent"),
        };
        return Verdict::new(Action::Fail, format!("{what}; {spent}"));
    }
    let alike = repeats(failures);
    if policy.same_failure_max > 0 && alike >= policy.same_failure_max {
        return Verdict::new(
            Action::Fail,
            format!("{what}; the same failure {alike} times in a row, so another try is pointless"),
        );
    }
    // Whoever failed first waits for everybody.
    let restarts = if failure.cause == Cause::Peer { 0 } else { in_a_row.saturating_sub(1) };
    let restart_at_ms = failure.at_ms.saturating_add(backoff_ms(restarts, policy));
    if now_ms < restart_at_ms {
        let reason = format!("{what}; restart in {} ms", restart_at_ms - now_ms);
        return Verdict::new(Action::Wait { until_ms: Some(restart_at_ms) }, reason);
    }
    Verdict::new(
        Action::Start { incarnation: incarnation + 1 },
        format!("{what}; restart {spent} of {allowed}"),
    )
}

/// How many failures of this cause, and of all causes, came since the last progress.
///
/// Progress is a life that came `refill_steps` further than every life before it: only steps that nobody made before count.
pub fn charged(failures: &[Failure], refill_steps: u64, cause: Cause) -> (u32, u32) {
    let (mut of_cause, mut all, mut furthest) = (0, 0, 0_u64);
    for failure in failures {
        if let Some(step) = failure.step {
            if refill_steps > 0 && step >= refill_steps.saturating_add(furthest) {
                (of_cause, all) = (0, 0);
            }
            furthest = furthest.max(step);
        }
        if failure.cause == Cause::Resize {
            continue;
        }
        all += 1;
        of_cause += u32::from(failure.cause == cause);
    }
    (of_cause, all)
}

/// How many of the last failures are the same, at the same step.
fn repeats(failures: &[Failure]) -> u32 {
    let Some(last) = failures.last() else { return 0 };
    let same = failures.iter().rev().take_while(|other| other.is_like(last));
    u32::try_from(same.count()).unwrap_or(u32::MAX)
}

/// The wait before the next life: none at first, then doubling.
fn backoff_ms(restarts: u32, policy: &Policy) -> u64 {
    match restarts {
        0 => 0,
        _ => policy.backoff_ms.saturating_mul(1u64 << (restarts - 1).min(32)).min(policy.backoff_max_ms),
    }
}

#[cfg(test)]
mod tests;
