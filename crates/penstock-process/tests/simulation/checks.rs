//! What must hold after everything that happens, judged from what really is, not from what the decider believes.

use std::collections::BTreeMap;

use penstock_process::coordinator::decider::Decider;
use penstock_process::coordinator::history::{Entry, JobHistory, Outcome};
use penstock_process::coordinator::messages::{Order, Orders, Over, Report};
use penstock_process::coordinator::verdict::{Action, Failure, Stop, UNKILLABLE_MS, WITNESS_MS};
use penstock_process::job::exit::Exit;
use penstock_process::job::policy::{Cause, Scope};
use penstock_process::job::state::Phase;
use penstock_process::job::{GangPlan, Kind};

use crate::scene::Scene;
use crate::twin::{STOP_SLACK_MS, Tended, Twin};
use crate::world::{LATENCY_MS, PATIENCE_MS};

/// Of a gang: lives, how it ended, and its failures.
pub(crate) type Essence = (u32, Option<Outcome>, Vec<(u32, String, Cause)>);

/// What was seen of one gang.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Failures as the journal has them, one for each life that failed.
    pub(crate) failures: Vec<Failure>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) lives: u32,
}

/// The judge of one world.
pub(crate) struct Checks<'a> {
    scene: &'a Scene,
    plans: Vec<GangPlan>,
    pub(crate) gangs: Vec<Seen>,
    /// When somebody asked to stop, and by when all has to be over.
    stop: Option<(u64, u64)>,
    /// A gang failed for good.
    failed: bool,
    /// How often each thing happened.
    pub(crate) happened: BTreeMap<&'static str, u32>,
}

impl<'a> Checks<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Self {
        let plans = scene.job.gangs();
        let gangs = plans.iter().map(|_| Seen::default()).collect();
        Self { scene, plans, gangs, stop: None, failed: false, happened: BTreeMap::new() }
    }

    pub(crate) fn asked_to_stop(&mut self, now_ms: u64, stop: &Stop) {
        self.count("stop");
        let grace_ms = if stop.forced { 0 } else { stop.grace_ms };
        // A coordinator that stands still is counted when it is replaced, which is later.
        let by_ms = now_ms + grace_ms + STOP_SLACK_MS + UNKILLABLE_MS + PATIENCE_MS + 1000;
        let (since_ms, known_ms) = self.stop.unwrap_or((now_ms, by_ms));
        self.stop = Some((since_ms, known_ms.min(by_ms)));
    }

    pub(crate) fn agent_died(&mut self) {
        self.count("agent killed");
        self.delay(1000);
    }

    pub(crate) fn coordinator_died(&mut self, how: &'static str) {
        self.count(how);
        self.delay(if how == "coordinator replaced" { PATIENCE_MS + 300 } else { 300 });
    }

    fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// Who has to decide was away for a while.
    fn delay(&mut self, ms: u64) {
        if let Some((_, by_ms)) = &mut self.stop {
            *by_ms += ms;
        }
    }

    /// P1 and P4: the same question has the same answer, from whoever remembers the same; and asked again it writes nothing.
    pub(crate) fn consider(
        &mut self,
        before: &JobHistory,
        report: &Report,
        entries: &[Entry],
        orders: &Orders,
    ) {
        let mut twice = Decider::new(self.scene.job.clone(), before.clone());
        let (entries_again, orders_again) = twice.consider(report);
        assert_eq!(
            (entries, orders),
            (&entries_again[..], &orders_again),
            "P1: the same question, the same answer"
        );
        let (more, repeated) = twice.consider(report);
        assert_eq!(more, [], "what was written down once is not written down again");
        let essence = |orders: &Orders| -> Vec<(Action, Vec<u32>, bool)> {
            orders
                .gangs
                .iter()
                .map(|order| (order.action.clone(), order.placement.clone(), order.incident))
                .collect()
        };
        // Gangs later in the list may know more the second time; those that begin or end must not change their mind.
        for (first, second) in essence(orders).iter().zip(&essence(&repeated)) {
            if !matches!(first.0, Action::Wait { .. }) {
                assert_eq!(
                    first, second,
                    "P4: a coordinator that comes back says what the last one meant to say: {orders:#?}"
                );
            }
        }
        assert!(orders.gangs.iter().all(|order| !order.reason.is_empty()), "P1: there is a reason");
        for order in &orders.gangs {
            if let Action::Wait { until_ms: Some(until_ms) } = order.action {
                assert!(until_ms > report.now_ms, "a wait ends later");
            }
        }
    }

    /// What is written into the journal, and whether it is so.
    pub(crate) fn noted(&mut self, entry: &Entry, twin: &Twin, now_ms: u64) {
        match entry {
            Entry::Failed { gang, failure } => {
                self.judge_failure(*gang, failure, &twin.gangs[*gang], now_ms);
                self.count(match failure.cause {
                    Cause::Crash => "crash",
                    Cause::Memory => "memory",
                    Cause::Hang => "hang",
                    Cause::Preemption => "preemption",
                    Cause::Host => "host",
                    Cause::Peer => "peer",
                    Cause::Resize => "resize",
                });
                let known = &mut self.gangs[*gang].failures;
                assert!(
                    known.last().is_none_or(|last| last.incarnation < failure.incarnation),
                    "one failure a life"
                );
                known.push(failure.clone());
            }
            Entry::Ordered { gang, incarnation, .. } => {
                assert_eq!(self.gangs[*gang].lives, *incarnation, "lives are counted one by one");
                self.gangs[*gang].lives = incarnation + 1;
                self.judge_budget(*gang);
            }
            Entry::Examined { gang, incarnation, likeness, lived_ms } => {
                let found =
                    self.gangs[*gang].failures.iter_mut().find(|failure| failure.incarnation == *incarnation);
                let found = found.expect("only failures are examined");
                found.likeness.clone_from(likeness);
                found.lived_ms = *lived_ms;
            }
            Entry::Blamed { gang, failure } => {
                let known =
                    self.gangs[*gang].failures.last_mut().expect("only failures are blamed on others");
                assert_eq!(known.incarnation, failure.incarnation, "of the newest life");
                if failure.cause != known.cause {
                    assert!(self.stop.is_some(), "preemption is known from a stop");
                    assert_eq!((known.cause, failure.cause), (Cause::Crash, Cause::Preemption));
                }
                known.clone_from(failure);
                self.count("blamed");
            }
            Entry::Finished { gang, outcome, .. } => {
                assert_eq!(self.gangs[*gang].outcome, None, "over is over");
                self.gangs[*gang].outcome = Some(*outcome);
                self.failed |= *outcome == Outcome::Failed;
                self.judge_outcome(*gang, *outcome, &twin.gangs[*gang], now_ms);
            }
            _ => {}
        }
    }

    fn judge_failure(&self, gang: usize, failure: &Failure, tended: &Tended, now_ms: u64) {
        let worker = failure.rank.and_then(|rank| tended.workers.iter().find(|worker| worker.rank == rank));
        match failure.cause {
            Cause::Hang => {
                // Nobody is named where nothing tells them apart, but then one of them hangs.
                let mut named = tended
                    .workers
                    .iter()
                    .filter(|other| worker.is_none_or(|worker| worker.rank == other.rank));
                assert!(
                    named.any(|worker| worker.fate.hangs_at(worker.age_ms(now_ms))),
                    "only who makes no steps hangs: {failure:?} {tended:?}"
                );
            }
            Cause::Host | Cause::Resize => panic!("a job of one host has one size: {failure:?}"),
            Cause::Peer => {
                let others = self.gangs.iter().zip(&self.plans).enumerate();
                let shared =
                    others.filter(|(other, (_, plan))| *other != gang && self.policy_of(plan) == Scope::All);
                assert!(shared.count() > 0, "somebody's failure is everybody's");
            }
            Cause::Crash | Cause::Memory | Cause::Preemption => {
                let told = tended.notified_ms.is_some();
                let left = |exit: &Exit| {
                    told && (exit.is_success() || exit.wants_to_go_on() || exit.is_terminated())
                };
                let bad = tended.workers.iter().filter(|worker| !worker.running && !worker.asked);
                let bad = bad.filter(|worker| !worker.exit.as_ref().is_some_and(left));
                let service = self.kind(gang) == Kind::Service;
                let bad = bad
                    .filter(|worker| worker.exit.as_ref().is_none_or(|exit| !exit.is_success() || service));
                let first = bad.min_by_key(|worker| worker.exit_ms);
                let lost =
                    tended.workers.iter().any(|worker| worker.exit.is_none()) || tended.workers.is_empty();
                assert!(first.is_some() || lost, "{failure:?} has a worker that failed: {tended:#?}");
                if let (Some(first), Some(_)) = (first, failure.rank) {
                    assert_eq!(failure.rank, Some(first.rank), "the first to fail is named");
                }
            }
        }
    }

    /// Budgets, counted anew: failures of the last cause since a life came far enough beyond all before it.
    fn judge_budget(&self, gang: usize) {
        let seen = &self.gangs[gang];
        let policy = &self.scene.job.roles[self.plans[gang].role].policy;
        let Some(last) = seen.failures.last() else { return };
        let refills = |place: usize| {
            let best = seen.failures[..place].iter().filter_map(|failure| failure.step).max().unwrap_or(0);
            policy.refill_steps > 0
                && seen.failures[place].step.is_some_and(|step| step >= best + policy.refill_steps)
        };
        let since = (0..seen.failures.len()).rev().find(|place| refills(*place)).unwrap_or(0);
        let spent = seen.failures[since..].iter().filter(|failure| failure.cause == last.cause).count();
        assert!(
            spent as u32 <= policy.budget.of(last.cause),
            "{spent} of {:?} are too many: {seen:?}",
            last.cause
        );
    }

    fn judge_outcome(&self, gang: usize, outcome: Outcome, tended: &Tended, now_ms: u64) {
        let stopped = self.stop.is_some() || self.failed;
        match outcome {
            Outcome::Succeeded => {
                let good = tended
                    .workers
                    .iter()
                    .filter(|worker| worker.exit.as_ref().is_some_and(|exit| exit.is_success()));
                assert_eq!(good.count(), self.plans[gang].ranks.len(), "success is everybody's: {tended:#?}");
            }
            Outcome::Failed => {
                assert!(!self.gangs[gang].failures.is_empty(), "a failure has a reason: {tended:#?}")
            }
            Outcome::Stopped => {
                let served = self.kind(gang) == Kind::Service && self.all_over();
                assert!(stopped || served, "somebody asked");
            }
        }
        let alive = tended.running() + tended.orphans.len() > 0;
        // A life that waited for slots may begin while its end is decided; it is ended as soon as that is known.
        let young = tended.workers.iter().all(|worker| worker.age_ms(now_ms) <= LATENCY_MS);
        let given_up = tended.is_past_hope(now_ms);
        assert!(!alive || given_up || young, "nobody of a gang that is over runs: {tended:#?}");
    }

    /// Whether all gangs and tasks are over.
    fn all_over(&self) -> bool {
        let needed = self.gangs.iter().enumerate().filter(|(gang, _)| self.kind(*gang) != Kind::Service);
        needed.into_iter().all(|(_, seen)| seen.outcome.is_some())
    }

    /// An order was given; `before` is how the gang was.
    pub(crate) fn obeyed(&mut self, order: &Order, before: &Tended, twin: &Twin, now_ms: u64) {
        let after = &twin.gangs[order.gang];
        let began = after.incarnation != before.incarnation;
        if began {
            self.judge_start(order, before, twin, now_ms);
            let spare = order
                .placement
                .iter()
                .zip(self.plans[order.gang].ranks.clone())
                .any(|(slot, rank)| *slot != rank);
            let about = [(spare, "slot of a spare"), (after.queued.is_some(), "queued")];
            about.into_iter().filter(|(so, _)| *so).for_each(|(_, what)| self.count(what));
        }
        let given_up = before.is_past_hope(now_ms);
        if given_up && before.running() + before.orphans.len() > 0 {
            self.count("unkillable");
        }
        if !before.orphans.is_empty() {
            self.count("orphan");
        }
        let touched = match order.action {
            Action::Notify { .. } => "notify",
            Action::Interrupt { .. } => "interrupt",
            Action::Witness => "witness",
            Action::End => "end",
            Action::Kill => "kill",
            _ if began => "start",
            _ => return,
        };
        self.count(touched);
        if began || order.incarnation != before.incarnation {
            return;
        }
        assert!(self.has_reason(order.gang, before), "a healthy gang is not touched: {order:?} {before:#?}");
        let hang = self.gangs[order.gang].failures.last().filter(|failure| {
            Some(failure.incarnation) == before.incarnation && failure.cause == Cause::Hang
        });
        if let Some(hang) = hang.filter(|_| order.action == Action::End && before.running() > 0) {
            assert!(
                before.witnessed || now_ms >= hang.at_ms + WITNESS_MS,
                "stacks come before the end of a hang"
            );
        }
    }

    fn has_reason(&self, gang: usize, before: &Tended) -> bool {
        let failed = self.gangs[gang]
            .failures
            .last()
            .is_some_and(|failure| Some(failure.incarnation) == before.incarnation);
        let served = self.kind(gang) == Kind::Service && self.all_over();
        failed || self.stop.is_some() || self.failed || served || before.running() == 0
    }

    fn judge_start(&self, order: &Order, before: &Tended, twin: &Twin, now_ms: u64) {
        assert_eq!(
            order.incarnation,
            Some(before.incarnation.map_or(0, |life| life + 1)),
            "one life after the other"
        );
        let gone = before.running() + before.orphans.len() == 0 || before.is_past_hope(now_ms);
        assert!(gone, "two lives of a gang never overlap: {before:#?}");
        assert!(self.stop.is_none(), "nobody is started after a stop");
        assert!(!self.failed, "nobody is started after the job's failure");
        assert_eq!(self.gangs[order.gang].outcome, None, "over is over");
        let role = &self.scene.job.roles[self.plans[order.gang].role];
        let everybody = self.gangs[order.gang].failures.last().is_some_and(|last| last.cause == Cause::Peer);
        for name in role.after.iter().filter(|_| order.incarnation == Some(0) || everybody) {
            assert!(self.is_past(name, twin), "{} comes after {name}: {order:?}", role.name);
        }
        let placement = &order.placement;
        assert_eq!(placement.len(), self.plans[order.gang].ranks.len(), "a slot for everybody");
        assert!(placement.iter().all(|slot| *slot < role.ranks + role.spares), "slots are those of the role");
    }

    fn is_past(&self, name: &str, twin: &Twin) -> bool {
        let of_role =
            self.plans.iter().enumerate().filter(|(_, plan)| self.scene.job.roles[plan.role].name == name);
        of_role.into_iter().all(|(gang, plan)| match self.scene.job.roles[plan.role].kind {
            Kind::Service => !twin.gangs[gang].workers.is_empty(),
            Kind::Gang | Kind::Task => self.gangs[gang].outcome == Some(Outcome::Succeeded),
        })
    }

    /// What must be so at every moment, whoever said what.
    pub(crate) fn after_a_moment(&self, twin: &Twin, now_ms: u64) {
        let mut taken: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for (plan, tended) in self.plans.iter().zip(&twin.gangs) {
            for worker in tended.workers.iter().filter(|worker| worker.running) {
                let other = taken.insert((plan.role, worker.slot), worker.rank);
                assert_eq!(other, None, "a slot has one worker: {:?}", self.scene.job.roles[plan.role]);
            }
        }
        if let Some((since_ms, by_ms)) = self.stop {
            assert!(now_ms <= by_ms, "a stop of {since_ms} ms ends by {by_ms} ms");
        }
    }

    /// What must be so when the job is over.
    pub(crate) fn at_the_end(&self, twin: &Twin, history: &JobHistory, over: &Over, now_ms: u64) {
        for (gang, tended) in twin.gangs.iter().enumerate() {
            let alive = tended.running() + tended.orphans.len() > 0;
            let given_up = tended.is_past_hope(now_ms);
            assert!(!alive || given_up, "gang {gang} runs although the job is over");
            assert!(tended.queued.is_none(), "nobody waits for slots");
            let failed: Vec<u32> = self.gangs[gang]
                .failures
                .iter()
                .filter(|failure| failure.cause != Cause::Peer)
                .map(|failure| failure.incarnation)
                .collect();
            if self.stop.is_none() && !self.failed {
                assert!(
                    failed.iter().all(|life| tended.incidents.contains(life)),
                    "every failure has its incident: {failed:?} {:?}",
                    tended.incidents
                );
            }
        }
        assert_eq!(history.over, Some(over.phase));
        let outcomes = || {
            self.gangs
                .iter()
                .zip(&self.plans)
                .filter(|(_, plan)| self.scene.job.roles[plan.role].kind != Kind::Service)
        };
        match over.phase {
            Phase::Succeeded => {
                assert_eq!(over.code, 0);
                assert!(
                    outcomes().all(|(seen, _)| seen.outcome == Some(Outcome::Succeeded)),
                    "success is everybody's"
                );
            }
            Phase::Failed => assert!(self.failed && over.code != 0, "a failure has a code"),
            Phase::Stopped => assert!(self.stop.is_some() || outcomes().count() == 0, "somebody asked"),
            other => panic!("{other:?} is no end"),
        }
    }

    fn kind(&self, gang: usize) -> Kind {
        self.scene.job.roles[self.plans[gang].role].kind
    }

    fn policy_of(&self, plan: &GangPlan) -> Scope {
        self.scene.job.roles[plan.role].policy.restart
    }

    /// What can be compared between two runs of a seed: lives, failures and ends of every gang. How often a service fails depends on
    /// how long it is needed.
    pub(crate) fn essence(&self) -> Vec<Essence> {
        let failures = |seen: &Seen| {
            seen.failures
                .iter()
                .map(|failure| (failure.incarnation, failure.what.clone(), failure.cause))
                .collect()
        };
        let compared = self.gangs.iter().enumerate().filter(|(gang, _)| self.kind(*gang) != Kind::Service);
        compared.map(|(_, seen)| (seen.lives, seen.outcome, failures(seen))).collect()
    }
}
