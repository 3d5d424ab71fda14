//! The coordinator's mind: from its memory and a report to entries of the journal and orders. Pure: no clock, no file, no process.
//!
//! It takes note of what is new, then asks [`decide`] about every gang, with what its neighbours mean for it: who waits for whom, who
//! restarts with whom, whose failure ends the job.

use crate::hang::{Suspect, due_ms, hung};
use crate::job::{GangPlan, Job, Kind};
use crate::memory::{Entry, GangMemory, Memory, Outcome};
use crate::messages::{GangReport, Order, Orders, Over, Report, WorkerReport};
use crate::policy::{Cause, Scope};
use crate::state::Phase;
use crate::verdict::{Action, Failure, Gang, Stop, UNKILLABLE_MS, Verdict, WITNESS_MS, decide};

/// How often the pulses of a gang that may hang are looked at, at least.
const PULSE_LOOK_MS: u64 = 1000;

/// What is remembered about a job, and what follows from it.
pub struct Mind {
    job: Job,
    plans: Vec<GangPlan>,
    memory: Memory,
    /// Of the report that is being considered.
    noted: Vec<Entry>,
}

impl Mind {
    /// With a memory that is empty, or folded from a journal.
    pub fn new(job: Job, memory: Memory) -> Self {
        Self { plans: job.gangs(), job, memory, noted: Vec::new() }
    }

    /// What is remembered.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What to write down, and then to order.
    pub fn consider(&mut self, report: &Report) -> (Vec<Entry>, Orders) {
        if let Some(stop) = report.stop.clone().filter(|stop| Some(stop) != self.memory.stop.as_ref()) {
            self.note(Entry::Stop { stop });
        }
        for gang in 0..self.plans.len() {
            if let Some(about) = report.gangs.get(gang) {
                self.take_note(gang, about, report.now_ms);
            }
        }
        self.spread_failures(report.now_ms);
        let mut orders = Vec::new();
        let mut look_at_ms: Option<u64> = None;
        for gang in 0..self.plans.len() {
            let nothing = GangReport::default();
            let about = report.gangs.get(gang).unwrap_or(&nothing);
            let (order, until_ms) = self.order(gang, about, report);
            look_at_ms = look_at_ms.into_iter().chain(until_ms).min();
            orders.push(order);
        }
        let over = self.conclude();
        let phase = over.as_ref().map_or_else(|| phase_of(&orders), |over| over.phase);
        let reason = self.memory.reason.clone();
        let answer = Orders { number: report.number, phase, reason, gangs: orders, look_at_ms, over };
        (std::mem::take(&mut self.noted), answer)
    }

    fn note(&mut self, entry: Entry) {
        self.memory.fold(&entry);
        self.noted.push(entry);
    }

    /// What is new about a gang: a life that began, workers that ended, the first failure of a life, what it looked like.
    fn take_note(&mut self, gang: usize, about: &GangReport, now_ms: u64) {
        let Some(incarnation) = about.incarnation else { return };
        let memory = &self.memory.gangs[gang];
        if memory.incarnation.is_some_and(|known| known > incarnation) {
            // The life that was ordered has not begun.
            return;
        }
        let unknown = memory.incarnation < Some(incarnation);
        if (unknown || !memory.started) && about.queued.is_none() {
            let pids = about.workers.iter().map(|worker| worker.pid).collect();
            self.note(Entry::Started { gang, incarnation, pids });
        }
        for worker in about.workers.iter().filter(|worker| !worker.running) {
            if !self.memory.gangs[gang].exited.contains(&worker.rank) {
                let (rank, pid, exit) = (worker.rank, worker.pid, worker.exit.clone());
                self.note(Entry::Exited { gang, incarnation, rank, pid, exit });
            }
        }
        if self.memory.gangs[gang].failure().is_none() {
            if let Some(failure) = self.failure_of(gang, incarnation, about, now_ms) {
                self.note(Entry::Failed { gang, failure });
            }
        }
        let memory = &self.memory.gangs[gang];
        if about.examined && memory.failure().is_some() && memory.examined != Some(incarnation) {
            self.note(Entry::Examined { gang, incarnation, likeness: about.likeness.clone() });
        }
    }

    /// The first failure of a life, if it has one.
    fn failure_of(&self, gang: usize, incarnation: u32, about: &GangReport, now_ms: u64) -> Option<Failure> {
        let role = &self.job.roles[self.plans[gang].role];
        let step = about.workers.iter().filter_map(|worker| Some(worker.pulse.as_ref()?.step)).max();
        let failed = |what: String, cause, rank, code, at_ms| {
            Some(Failure { incarnation, what, cause, rank, code, likeness: None, step, at_ms })
        };
        let service = role.kind == Kind::Service;
        let ended = about.workers.iter().filter(|worker| !worker.running && !worker.asked);
        let bad =
            ended.filter(|worker| worker.exit.as_ref().is_none_or(|exit| !exit.is_success() || service));
        if let Some(first) = bad.min_by_key(|worker| worker.exit_ms) {
            let at_ms = first.exit_ms.unwrap_or(now_ms);
            return match &first.exit {
                Some(exit) => {
                    let what = format!("{} {exit}", self.called(gang, first.rank));
                    failed(what, cause_of(first), Some(first.rank), exit.shell_code().max(1), at_ms)
                }
                None => failed("the agent was killed".to_owned(), Cause::Crash, None, 1, at_ms),
            };
        }
        let rule = role.policy.hang.as_ref()?;
        if about.notified_since_ms.or(about.ending_since_ms).is_some() {
            return None;
        }
        let (rank, what) = hung(now_ms, &suspects(about), rule)?;
        failed(what, Cause::Hang, Some(rank), 1, now_ms)
    }

    /// How a worker is called in sentences: with its role, where a job has several.
    fn called(&self, gang: usize, rank: u32) -> String {
        match self.job.roles.len() {
            1 => format!("rank {rank}"),
            _ => format!("{}-{rank}", self.job.roles[self.plans[gang].role].name),
        }
    }

    /// A failure of a gang whose policy is to restart everybody is a failure of everybody that runs.
    fn spread_failures(&mut self, now_ms: u64) {
        let shared = self.plans.iter().zip(&self.memory.gangs).find_map(|(plan, memory)| {
            let all = self.job.roles[plan.role].policy.restart == Scope::All;
            let failure = memory.failure().filter(|failure| failure.cause != Cause::Peer)?;
            (all && memory.outcome.is_none()).then(|| failure.what.clone())
        });
        let Some(what) = shared else { return };
        for gang in 0..self.plans.len() {
            let memory = &self.memory.gangs[gang];
            let Some(incarnation) = memory.incarnation.filter(|_| memory.started) else { continue };
            if memory.outcome.is_none() && memory.failure().is_none() {
                let failure = Failure {
                    incarnation,
                    what: what.clone(),
                    cause: Cause::Peer,
                    rank: None,
                    code: 1,
                    likeness: None,
                    step: None,
                    at_ms: now_ms,
                };
                self.note(Entry::Failed { gang, failure });
            }
        }
    }

    /// Who failed because of somebody else begins when that one does, not before.
    fn waits_for_peer(&self, gang: usize, known: &Gang) -> bool {
        let by_peer =
            |memory: &GangMemory| memory.failure().is_some_and(|failure| failure.cause == Cause::Peer);
        let gone = known.running + known.orphans == 0;
        gone && by_peer(&self.memory.gangs[gang])
            && self.plans.iter().zip(&self.memory.gangs).any(|(plan, memory)| {
                let all = self.job.roles[plan.role].policy.restart == Scope::All;
                all && memory.outcome.is_none() && memory.failure().is_some() && !by_peer(memory)
            })
    }

    /// What to do with a gang, and when to look again.
    fn order(&mut self, gang: usize, about: &GangReport, report: &Report) -> (Order, Option<u64>) {
        let role = &self.job.roles[self.plans[gang].role];
        let known = self.gang(gang, about);
        let policy = role.policy.clone();
        let late = self.memory.gangs[gang].incarnation > about.incarnation;
        let verdict = match self.memory.gangs[gang].outcome {
            Some(outcome) => settled(outcome, &self.memory.gangs[gang]),
            // A life that was ordered and not begun is ordered again: whoever ordered it may be gone.
            None if late && known.stop.is_none() => again(&self.memory.gangs[gang]),
            None if late => Verdict { action: Action::Stopped, reason: "stopped before it began".to_owned() },
            None if known.stop.is_none() && self.waits_for_peer(gang, &known) => Verdict {
                action: Action::Wait { until_ms: None },
                reason: "waits for the restart of everybody".to_owned(),
            },
            None => decide(report.now_ms, &known, &policy),
        };
        let incident = self.write_down(gang, &verdict);
        let memory = &self.memory.gangs[gang];
        let begins = matches!(verdict.action, Action::Start { .. });
        let watched = (known.running > 0 && policy.hang.is_some() && memory.failure().is_none())
            .then(|| self.hang_due(gang, about, report.now_ms))
            .flatten();
        let until_ms = match verdict.action {
            Action::Wait { until_ms } => until_ms.into_iter().chain(watched).min(),
            // Who cannot be killed, and stacks that never come, wake nobody.
            Action::Kill => {
                Some(about.killing_since_ms.unwrap_or(report.now_ms).saturating_add(UNKILLABLE_MS))
            }
            Action::Witness => Some(report.now_ms.saturating_add(WITNESS_MS)),
            _ => watched,
        };
        let order = Order {
            gang,
            incarnation: memory.incarnation,
            phase: phase_of_gang(&known, &verdict, memory.outcome),
            action: verdict.action,
            reason: verdict.reason,
            failures: memory.failures.clone(),
            placement: if begins { memory.placement.clone() } else { Vec::new() },
            incident,
        };
        (order, until_ms)
    }

    /// When somebody may hang at the earliest; at most a little while from now, because pulses change what is typical.
    fn hang_due(&self, gang: usize, about: &GangReport, now_ms: u64) -> Option<u64> {
        let rule = self.job.roles[self.plans[gang].role].policy.hang.as_ref()?;
        let due = suspects(about).iter().filter_map(|suspect| due_ms(suspect, rule)).min();
        let listening = about.workers.iter().any(|worker| worker.pulse.is_some()) || rule.silence_ms > 0;
        let slow = listening.then_some(now_ms + PULSE_LOOK_MS);
        due.map(|due_ms| due_ms.max(now_ms + 1)).into_iter().chain(slow).min()
    }

    /// The view that `decide` has of a gang: what is, what was, and what its neighbours mean for it.
    fn gang(&self, gang: usize, about: &GangReport) -> Gang {
        let memory = &self.memory.gangs[gang];
        let role = &self.job.roles[self.plans[gang].role];
        let count = |wanted: &dyn Fn(&WorkerReport) -> bool| {
            u32::try_from(about.workers.iter().filter(|worker| wanted(worker)).count()).unwrap_or(u32::MAX)
        };
        Gang {
            kind: role.kind,
            incarnation: memory.incarnation,
            queued: about.queued.is_some(),
            waits_for: self.waits_for(gang),
            running: count(&|worker| worker.running),
            succeeded: count(&|worker| worker.exit.as_ref().is_some_and(|exit| exit.is_success())),
            orphans: about.orphans,
            failures: memory.failures.clone(),
            stop: self.memory.stop.clone().or_else(|| self.stop_of(gang)),
            listens: about
                .workers
                .iter()
                .any(|worker| worker.running && worker.pulse.as_ref().is_some_and(|pulse| pulse.listens)),
            witnessed: about.witnessed,
            notified_since_ms: about.notified_since_ms,
            ending_since_ms: about.ending_since_ms,
            killing_since_ms: about.killing_since_ms,
        }
    }

    /// The roles that have to come first and have not.
    fn waits_for(&self, gang: usize) -> Option<String> {
        let role = &self.job.roles[self.plans[gang].role];
        let open: Vec<&str> =
            role.after.iter().map(String::as_str).filter(|name| !self.is_past(name)).collect();
        (!open.is_empty()).then(|| open.join(", "))
    }

    fn is_past(&self, name: &str) -> bool {
        let of_role = self
            .plans
            .iter()
            .zip(&self.memory.gangs)
            .filter(|(plan, _)| self.job.roles[plan.role].name == name);
        of_role.into_iter().all(|(plan, memory)| match self.job.roles[plan.role].kind {
            Kind::Service => memory.started && memory.failure().is_none(),
            Kind::Gang | Kind::Task => memory.outcome == Some(Outcome::Succeeded),
        })
    }

    /// Why a gang has to end although nobody asked: another failed for good, or nobody is left who may need it.
    fn stop_of(&self, gang: usize) -> Option<Stop> {
        let role = &self.job.roles[self.plans[gang].role];
        let failed = self.memory.gangs.iter().position(|memory| memory.outcome == Some(Outcome::Failed));
        if let Some(other) = failed {
            let by = format!("the failure of {}", self.job.roles[self.plans[other].role].name);
            return Some(Stop {
                by,
                grace_ms: role.policy.failure_grace_ms,
                forced: false,
                code: 1,
                failed: false,
            });
        }
        let needed = |plan: &GangPlan| self.job.roles[plan.role].kind != Kind::Service;
        let mut others =
            self.plans.iter().zip(&self.memory.gangs).filter(|(plan, _)| needed(plan)).peekable();
        let alone = others.peek().is_none();
        if role.kind == Kind::Service && !alone && others.all(|(_, memory)| memory.outcome.is_some()) {
            let by = "the end of everything that needed it".to_owned();
            return Some(Stop {
                by,
                grace_ms: role.policy.stop_grace_ms,
                forced: false,
                code: 0,
                failed: false,
            });
        }
        None
    }

    /// Puts a verdict into the journal, once; whether the life that ended is worth an incident.
    fn write_down(&mut self, gang: usize, verdict: &Verdict) -> bool {
        let memory = &self.memory.gangs[gang];
        let reason = verdict.reason.clone();
        match verdict.action {
            Action::Wait { .. } => false,
            Action::Start { incarnation } if memory.incarnation == Some(incarnation) => incarnation > 0,
            Action::Start { incarnation } => {
                let placement = self.place(gang);
                self.note(Entry::Ordered { gang, incarnation, placement, reason });
                incarnation > 0
            }
            Action::Succeed | Action::Fail | Action::Stopped if memory.outcome.is_some() => false,
            Action::Succeed => {
                self.note(Entry::Finished { gang, outcome: Outcome::Succeeded, reason });
                false
            }
            Action::Fail => {
                self.note(Entry::Finished { gang, outcome: Outcome::Failed, reason });
                true
            }
            Action::Stopped => {
                self.note(Entry::Finished { gang, outcome: Outcome::Stopped, reason });
                false
            }
            Action::Notify { .. } | Action::Witness | Action::End | Action::Kill => {
                let name = match verdict.action {
                    Action::Notify { .. } => "notify",
                    Action::Witness => "witness",
                    Action::End => "end",
                    _ => "kill",
                };
                if memory.verdict.as_deref() != Some(&format!("{name} {reason}")) {
                    let (incarnation, action) = (memory.incarnation, name.to_owned());
                    self.note(Entry::Verdict { gang, incarnation, action, reason });
                }
                false
            }
        }
    }

    /// Which slot each worker gets: the one it had, unless it failed there and a spare is better.
    fn place(&self, gang: usize) -> Vec<u32> {
        let (plan, memory) = (&self.plans[gang], &self.memory.gangs[gang]);
        let mut placement =
            if memory.placement.is_empty() { plan.ranks.clone().collect() } else { memory.placement.clone() };
        let Some(failure) = memory.failure().filter(|failure| failure.cause != Cause::Preemption) else {
            return placement;
        };
        let Some(place) = failure.rank.and_then(|rank| rank.checked_sub(memory.first)) else {
            return placement;
        };
        let charge = |slot: u32| memory.charges.get((slot - memory.first) as usize).copied().unwrap_or(0);
        let slots = memory.first..memory.first + u32::try_from(memory.charges.len()).unwrap_or(0);
        let spare = slots.filter(|slot| !placement.contains(slot)).min_by_key(|slot| (charge(*slot), *slot));
        if let Some((spare, own)) = spare.zip(placement.get(place as usize).copied()) {
            if charge(spare) < charge(own) {
                placement[place as usize] = spare;
            }
        }
        placement
    }

    /// Whether nothing is left to do, and how the job ended.
    fn conclude(&mut self) -> Option<Over> {
        if self.memory.gangs.iter().any(|memory| memory.outcome.is_none()) {
            return None;
        }
        let failed = self.memory.gangs.iter().find(|memory| memory.outcome == Some(Outcome::Failed));
        let needed = self.plans.iter().zip(&self.memory.gangs);
        let mut needed =
            needed.filter(|(plan, _)| self.job.roles[plan.role].kind != Kind::Service).peekable();
        let served =
            needed.peek().is_some() && needed.all(|(_, memory)| memory.outcome == Some(Outcome::Succeeded));
        let (phase, code, reason) = match (failed, self.memory.stop.as_ref()) {
            (_, Some(stop)) if stop.failed => (Phase::Failed, stop.code, stop.by.clone()),
            (Some(memory), _) => {
                let code = memory.failures.last().map_or(1, |failure| failure.code);
                (Phase::Failed, code, self.memory.reason.clone())
            }
            (None, _) if served => (Phase::Succeeded, 0, self.memory.reason.clone()),
            (None, stop) => {
                let by =
                    stop.map_or_else(|| self.memory.reason.clone(), |stop| format!("stopped by {}", stop.by));
                (Phase::Stopped, stop.map_or(143, |stop| stop.code), by)
            }
        };
        if self.memory.over.is_none() {
            self.note(Entry::Over { phase, reason });
        }
        Some(Over { phase, code })
    }
}

fn suspects(about: &GangReport) -> Vec<Suspect<'_>> {
    let running = about.workers.iter().filter(|worker| worker.running);
    running
        .map(|worker| Suspect { rank: worker.rank, pulse: worker.pulse.as_ref(), heard_ms: worker.heard_ms })
        .collect()
}

fn cause_of(worker: &WorkerReport) -> Cause {
    match &worker.exit {
        Some(exit) if exit.memory_exhausted => Cause::Memory,
        Some(exit) if exit.is_preempted() => Cause::Preemption,
        _ => Cause::Crash,
    }
}

/// What is said about a gang that is over, again and again until everybody knows.
fn settled(outcome: Outcome, memory: &GangMemory) -> Verdict {
    let action = match outcome {
        Outcome::Succeeded => Action::Succeed,
        Outcome::Failed => Action::Fail,
        Outcome::Stopped => Action::Stopped,
    };
    let reason = memory.failure().map_or_else(|| "over".to_owned(), |failure| failure.what.clone());
    Verdict { action, reason }
}

fn again(memory: &GangMemory) -> Verdict {
    let reason =
        memory.failures.last().map_or_else(|| "as asked for".to_owned(), |failure| failure.what.clone());
    Verdict { action: Action::Start { incarnation: memory.incarnation.unwrap_or(0) }, reason }
}

fn phase_of_gang(gang: &Gang, verdict: &Verdict, outcome: Option<Outcome>) -> Phase {
    match (outcome, &verdict.action) {
        (Some(Outcome::Succeeded), _) | (_, Action::Succeed) => Phase::Succeeded,
        (Some(Outcome::Failed), _) | (_, Action::Fail) => Phase::Failed,
        (Some(Outcome::Stopped), _) | (_, Action::Stopped) => Phase::Stopped,
        (None, _) if gang.queued => Phase::Queued,
        (None, Action::Start { .. }) => Phase::Running,
        (None, Action::Notify { .. } | Action::Witness | Action::End | Action::Kill) => Phase::Ending,
        (None, Action::Wait { .. }) if gang.running == 0 => Phase::Waiting,
        (None, Action::Wait { .. }) if gang.notified_since_ms.or(gang.ending_since_ms).is_some() => {
            Phase::Ending
        }
        (None, Action::Wait { .. }) => Phase::Running,
    }
}

/// A job is what the liveliest of its gangs is.
fn phase_of(orders: &[Order]) -> Phase {
    let any = |wanted: Phase| orders.iter().any(|order| order.phase == wanted);
    let order = [Phase::Ending, Phase::Running, Phase::Queued];
    order.into_iter().find(|phase| any(*phase)).unwrap_or(Phase::Waiting)
}
