//! What the coordinator decides: from the history of a job and a report to entries of the journal and orders.
//!
//! Pure: no clock, no file, no process. It takes note of what is new ([`news`]), then asks [`decide`] about every gang, with what
//! its neighbours mean for it ([`neighbours`]): who waits for whom, who restarts with whom, whose failure ends the job. Asked the
//! same again, it says the same and writes nothing: a coordinator that takes over in the middle says what the last one meant to say.

mod growth;
mod hosts;
mod neighbours;
mod news;
mod placement;
mod progress;

use crate::coordinator::decider::hosts::prepared_first;
use crate::coordinator::hang::{Judgement, Pulse};
use crate::coordinator::history::{Entry, GangHistory, JobHistory, Outcome};
use crate::coordinator::messages::{Order, Orders, Over, Report};
use crate::coordinator::verdict::{Action, Gang, UNKILLABLE_MS, Verdict, WITNESS_MS, decide};
use crate::coordinator::view::{GangView, JobView};
use crate::job::policy::Cause;
use crate::job::state::Phase;
use crate::job::{GangPlan, Job, Kind};

/// From the end of a save to the end of the worker.
const LEAVING_MS: u64 = 5000;
/// Why a gang that seems to hang runs on.
const KILLS_NOTHING: &str = "nothing is ended, because neither --restarts nor --hang was given";
/// How often the pulses of a gang that may hang are looked at, at least.
const PULSE_LOOK_MS: u64 = 1000;

/// The history of a job, and what follows from it.
pub struct Decider {
    job: Job,
    plans: Vec<GangPlan>,
    history: JobHistory,
    /// Of the report that is being considered.
    noted: Vec<Entry>,
}

impl Decider {
    /// With a history that is empty, or folded from a journal.
    pub fn new(job: Job, history: JobHistory) -> Self {
        Self::over(job.gangs(), job, history)
    }

    /// Of these gangs of a job.
    pub fn over(plans: Vec<GangPlan>, job: Job, history: JobHistory) -> Self {
        Self { plans, job, history, noted: Vec::new() }
    }

    /// What is remembered.
    pub fn history(&self) -> &JobHistory {
        &self.history
    }

    /// What to write down, and then to order, on one host.
    pub fn consider(&mut self, report: &Report) -> (Vec<Entry>, Orders) {
        let view = JobView::of_report(report, &self.job);
        self.consider_view(&view)
    }

    /// What to write down, and then to order.
    pub fn consider_view(&mut self, view: &JobView<'_>) -> (Vec<Entry>, Orders) {
        self.hear_stop(view);
        for (gang, about) in view.gangs.iter().enumerate().take(self.plans.len()) {
            self.take_note(gang, about, view.now_ms);
            self.take_note_of_hosts(gang, about, view);
        }
        self.take_note_of_growth(view);
        self.note_preemptions(view);
        self.spread_failures(view);
        (0..self.plans.len()).for_each(|gang| self.learn(gang, about(view, gang)));
        self.settle(view);
        let mut orders = Vec::new();
        let mut look_at_ms: Option<u64> = None;
        for gang in 0..self.plans.len() {
            let (order, until_ms) = self.order(gang, view);
            look_at_ms = look_at_ms.into_iter().chain(until_ms).min();
            orders.push(order);
        }
        let over = self.conclude(view);
        let phase = over.as_ref().map_or_else(|| phase_of(&orders), |over| over.phase);
        let queued = orders.iter().find(|order| phase == Phase::Queued && order.phase == phase);
        let reason = queued.map_or_else(|| self.history.reason.clone(), |order| order.reason.clone());
        let answer = Orders {
            number: view.number,
            phase,
            reason,
            gangs: orders,
            look_at_ms,
            over,
            standing: None,
            lease_until_ms: None,
        };
        (std::mem::take(&mut self.noted), answer)
    }

    /// Ends for good what is to be ended, before anything else is decided: one gang's end may be another's, or nobody may begin
    /// any more. Ends at the latest when all are over.
    fn settle(&mut self, view: &JobView<'_>) {
        for _ in 0..=self.plans.len() {
            let before = self.noted.len();
            for gang in 0..self.plans.len() {
                let verdict = self.verdict(gang, view);
                if matches!(verdict.action, Action::Succeed | Action::Fail | Action::Stopped) {
                    self.write_down(gang, &verdict, view);
                }
            }
            if self.noted.len() == before {
                return;
            }
        }
    }

    fn note(&mut self, entry: Entry) {
        self.history.fold(&entry);
        self.noted.push(entry);
    }

    /// What to do with a gang.
    fn verdict(&self, gang: usize, view: &JobView<'_>) -> Verdict {
        let history = &self.history.gangs[gang];
        let about = about(view, gang);
        if let Some(outcome) = history.outcome {
            return if lingers(about, view.now_ms) {
                // It waited for slots when it was ended, and got them before it heard of that.
                Verdict { action: Action::Kill, reason: history.reason.clone() }
            } else {
                settled(outcome, history)
            };
        }
        let known = self.gang(gang, about);
        if let Some(verdict) = self.beginning(gang, view, &known) {
            return verdict;
        }
        if view.hosts.is_none() && history.incarnation > about.incarnation {
            // A life that was ordered and not begun is ordered again: whoever ordered it may be gone.
            let (action, reason) = match (&known.stop, history.incarnation) {
                (None, Some(incarnation)) => (Action::Start { incarnation }, history.reason.clone()),
                _ => (Action::Stopped, "stopped before it began".to_owned()),
            };
            return Verdict { action, reason };
        }
        let verdict = decide(view.now_ms, &known, &self.job.roles[self.plans[gang].role].policy);
        match (&verdict.action, self.held_back(gang, view)) {
            (Action::Start { .. }, Some(reason)) if history.incarnation.is_some() => {
                Verdict { action: Action::Wait { until_ms: None }, reason }
            }
            (Action::Start { incarnation }, _) => {
                prepared_first(self.hosts_of(gang, view).as_deref(), *incarnation, verdict)
            }
            (Action::Wait { .. }, _) if history.leave.is_some() => self.asked_to_leave(gang, view, verdict),
            _ => verdict,
        }
    }

    /// The order to a gang, and when to look again.
    fn order(&mut self, gang: usize, view: &JobView<'_>) -> (Order, Option<u64>) {
        let about = about(view, gang);
        let mut verdict = self.verdict(gang, view);
        self.write_down(gang, &verdict, view);
        let known = self.gang(gang, about);
        let watched = known.running > 0 && self.history.gangs[gang].failure().is_none();
        let watched_ms = if watched { self.look_after(gang, view, &mut verdict) } else { None };
        let suspicion = self.untold(gang, about).filter(|_| verdict.action == Action::Warn).cloned();
        let history = &self.history.gangs[gang];
        let begins = matches!(verdict.action, Action::Start { .. } | Action::Prepare { .. });
        // These are followed by nothing if what they want to bring about does not happen, so somebody has to look.
        let until_ms = match verdict.action {
            Action::Wait { until_ms } => until_ms,
            Action::Kill => about.killing_since_ms.map(|since_ms| since_ms.saturating_add(UNKILLABLE_MS)),
            Action::Witness => history.failure().map(|failure| failure.at_ms.saturating_add(WITNESS_MS)),
            Action::Prepare { .. } => self.prepare_by_ms(gang, view),
            _ => None,
        };
        // A life that was ordered and will never begin cannot be ended; the order is about the one before it.
        let late = history.incarnation > about.incarnation && !begins;
        let incarnation = if late { about.incarnation } else { history.incarnation };
        let order = Order {
            gang,
            incarnation,
            incident: is_worth_an_incident(history, incarnation, &verdict.action),
            phase: phase_of_gang(&known, &verdict, history.outcome),
            action: verdict.action,
            reason: verdict.reason,
            failures: history.failures.clone(),
            placement: if begins { history.placement.clone() } else { Vec::new() },
            suspicion,
            meeting: history.meeting.filter(|_| begins),
            past: view.hosts.as_ref().map(|_| self.past(gang)),
        };
        (order, until_ms.into_iter().chain(watched_ms).min())
    }

    /// Where nothing else is to be done: tells people what they were not told, or has stacks looked at before somebody is judged. When
    /// somebody may hang at the earliest; at most a little while from now, because pulses change what is typical.
    fn look_after(&self, gang: usize, view: &JobView<'_>, verdict: &mut Verdict) -> Option<u64> {
        let (about, now_ms) = (about(view, gang), view.now_ms);
        let idle = matches!(verdict.action, Action::Wait { .. });
        if let Some(suspicion) = self.untold(gang, about).filter(|_| idle) {
            *verdict =
                Verdict { action: Action::Warn, reason: format!("{}; {KILLS_NOTHING}", suspicion.what) };
        }
        let due_ms = match self.judgement(gang, about, now_ms)? {
            Judgement::Fine(due_ms) => due_ms,
            Judgement::Look => {
                if matches!(verdict.action, Action::Wait { .. }) {
                    verdict.action = Action::Look;
                }
                None
            }
            Judgement::Hung(_) | Judgement::Slow(_) => None,
        };
        let rule = self.job.roles[self.plans[gang].role].policy.hang.as_ref()?;
        let listening = about.pulsing || rule.silence_ms > 0;
        let slow = listening.then_some(now_ms + PULSE_LOOK_MS);
        due_ms.map(|due_ms| due_ms.max(now_ms + 1)).into_iter().chain(slow).min()
    }

    /// The view that `decide` has of a gang: what is, what was, and what its neighbours mean for it.
    fn gang(&self, gang: usize, about: &GangView<'_>) -> Gang {
        let history = &self.history.gangs[gang];
        let role = &self.job.roles[self.plans[gang].role];
        let stop = self.history.stop.clone().or_else(|| self.stop_of(gang));
        // What has not begun will begin; but not any more in a life that ends.
        let failed = history.failure().is_some();
        let ends = stop.is_some() || failed;
        // Of many hosts some may have said nothing of a life yet: it has not succeeded before all of its ranks have.
        let unknown =
            about.local.is_none() && !about.done && about.running + about.unheard + about.unbegun == 0;
        let awaited = if ends { 0 } else { about.unbegun.max(u32::from(unknown)) };
        Gang {
            kind: role.kind,
            incarnation: history.incarnation,
            first_life: history.first_life,
            // On one host all of a life waits, or nothing does.
            queued: about.queued.clone().filter(|_| about.local.is_some() || (about.running == 0 && !failed)),
            waits_for: self.waits_for(gang),
            running: about.running.saturating_add(about.unheard).saturating_add(awaited),
            succeeded: about.succeeded,
            orphans: about.orphans,
            failures: history.failures.clone(),
            stop,
            listens: about.listens,
            saving: about.saving,
            witnessed: about.witnessed,
            notified_since_ms: about.notified_since_ms,
            signalled_since_ms: about.signalled_since_ms,
            ending_since_ms: about.ending_since_ms,
            // Who is unheard was not killed, and does not sleep in the kernel.
            killing_since_ms: about.killing_since_ms.filter(|_| about.unheard == 0),
        }
    }

    /// Puts a verdict into the journal, once.
    fn write_down(&mut self, gang: usize, verdict: &Verdict, view: &JobView<'_>) {
        let history = &self.history.gangs[gang];
        let reason = verdict.reason.clone();
        let name = match verdict.action {
            // That they are asked to leave is written down with its moment.
            Action::Wait { .. } | Action::Look | Action::Warn | Action::Leave => return,
            Action::Prepare { incarnation } => return self.order_life(gang, incarnation, reason, view),
            Action::Start { incarnation } if view.hosts.is_some() => {
                return self.order_start(gang, incarnation, view);
            }
            Action::Start { incarnation } => {
                if history.incarnation != Some(incarnation) {
                    let placement = self.place(gang);
                    self.note(Entry::Ordered { gang, incarnation, placement, reason, at_ms: None });
                }
                return;
            }
            Action::Succeed => return self.finish(gang, Outcome::Succeeded, reason),
            Action::Fail => return self.finish(gang, Outcome::Failed, reason),
            Action::Stopped => return self.finish(gang, Outcome::Stopped, reason),
            Action::Notify { .. } => "notify",
            Action::Interrupt { .. } => "interrupt",
            Action::Witness => "witness",
            Action::End => "end",
            Action::Kill => "kill",
        };
        if history.verdict.as_deref() != Some(&format!("{name} {reason}")) {
            let (incarnation, action) = (history.incarnation, name.to_owned());
            self.note(Entry::Verdict { gang, incarnation, action, reason });
        }
    }

    /// Puts the end of a gang into the journal, once.
    fn finish(&mut self, gang: usize, outcome: Outcome, reason: String) {
        if self.history.gangs[gang].outcome.is_none() {
            self.note(Entry::Finished { gang, outcome, reason });
        }
    }

    /// Whether nothing is left to do, and how the job ended.
    fn conclude(&mut self, view: &JobView<'_>) -> Option<Over> {
        let open = self.history.gangs.iter().any(|history| history.outcome.is_none());
        if open || view.gangs.iter().any(|about| lingers(about, view.now_ms)) {
            return None;
        }
        let failed = self.history.gangs.iter().find(|history| history.outcome == Some(Outcome::Failed));
        let needed = self.plans.iter().zip(&self.history.gangs);
        let needed: Vec<&GangHistory> = needed
            .filter(|(plan, _)| self.job.roles[plan.role].kind != Kind::Service)
            .map(|(_, history)| history)
            .collect();
        let served = needed.iter().all(|history| history.outcome == Some(Outcome::Succeeded));
        let last = needed.last().filter(|_| served);
        let (phase, code, reason) = match (failed, self.history.stop.as_ref(), last) {
            (_, Some(stop), _) if stop.failed => (Phase::Failed, stop.code, stop.by.clone()),
            (Some(history), _, _) => {
                let code = history.failures.last().map_or(1, |failure| failure.code);
                (Phase::Failed, code, history.reason.clone())
            }
            (None, _, Some(last)) => (Phase::Succeeded, 0, last.reason.clone()),
            (None, Some(stop), None) => (Phase::Stopped, stop.code, format!("stopped by {}", stop.by)),
            (None, None, None) => (Phase::Stopped, 143, self.history.reason.clone()),
        };
        if self.history.over.is_none() {
            self.note(Entry::Over { phase, reason });
        }
        Some(Over { phase, code })
    }
}

/// Whether workers run that can still be killed.
fn lingers(about: &GangView<'_>, now_ms: u64) -> bool {
    let asleep = about.killing_since_ms.is_some_and(|since| now_ms >= since.saturating_add(UNKILLABLE_MS));
    about.running > 0 && !asleep
}

/// What is said about a gang that is over, again and again until everybody knows.
fn settled(outcome: Outcome, history: &GangHistory) -> Verdict {
    let action = match outcome {
        Outcome::Succeeded => Action::Succeed,
        Outcome::Failed => Action::Fail,
        Outcome::Stopped => Action::Stopped,
    };
    Verdict { action, reason: history.reason.clone() }
}

/// Whether a life ended in a way that people want to read about. Whoever obeys writes one incident for each life.
fn is_worth_an_incident(history: &GangHistory, incarnation: Option<u32>, action: &Action) -> bool {
    let failed = |life: Option<u32>, peers: bool| {
        let known = history.failures.iter().find(|failure| Some(failure.incarnation) == life);
        known.is_some_and(|failure| failure.cause != Cause::Resize && (peers || failure.cause != Cause::Peer))
    };
    match action {
        Action::Start { incarnation } | Action::Prepare { incarnation } => {
            failed(incarnation.checked_sub(1), true)
        }
        Action::Fail => true,
        Action::Stopped => failed(incarnation, false),
        _ => false,
    }
}

/// What is known about a gang.
fn about<'a, 'b>(view: &'b JobView<'a>, gang: usize) -> &'b GangView<'a> {
    &view.gangs[gang]
}

fn phase_of_gang(gang: &Gang, verdict: &Verdict, outcome: Option<Outcome>) -> Phase {
    match (outcome, &verdict.action) {
        (Some(Outcome::Succeeded), _) | (_, Action::Succeed) => Phase::Succeeded,
        (Some(Outcome::Failed), _) | (_, Action::Fail) => Phase::Failed,
        (Some(Outcome::Stopped), _) | (_, Action::Stopped) => Phase::Stopped,
        (None, _) if gang.queued.is_some() => Phase::Queued,
        (None, Action::Start { .. }) => Phase::Running,
        (None, Action::Prepare { .. }) => Phase::Waiting,
        (None, Action::Notify { .. } | Action::Interrupt { .. }) => Phase::Ending,
        (None, Action::Witness | Action::End | Action::Kill) => Phase::Ending,
        (None, Action::Wait { .. }) if gang.running == 0 => Phase::Waiting,
        (None, Action::Wait { .. }) if is_ending(gang) => Phase::Ending,
        (None, Action::Wait { .. } | Action::Look | Action::Warn | Action::Leave) => Phase::Running,
    }
}

/// Whether a worker must not be ended before it is further: it saves, or has just saved and leaves.
pub fn saves(pulse: &Pulse, now_ms: u64) -> bool {
    match pulse.phase.as_str() {
        "checkpoint" => true,
        "leaving" => now_ms < pulse.phase_at_ms.saturating_add(LEAVING_MS),
        _ => false,
    }
}

fn is_ending(gang: &Gang) -> bool {
    gang.notified_since_ms.or(gang.signalled_since_ms).or(gang.ending_since_ms).is_some()
}

/// A job is what the liveliest of its gangs is.
fn phase_of(orders: &[Order]) -> Phase {
    let any = |wanted: Phase| orders.iter().any(|order| order.phase == wanted);
    let order = [Phase::Ending, Phase::Running, Phase::Queued];
    order.into_iter().find(|phase| any(*phase)).unwrap_or(Phase::Waiting)
}

#[cfg(test)]
mod tests;
