//! What is decided for a whole job: who begins, who ends, who is placed where.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::coordinator::hang::{Pulse, Signs};
use crate::coordinator::messages::{GangReport, WorkerReport};
use crate::coordinator::verdict::{Failure, Stop};
use crate::job::Role;
use crate::job::exit::Exit;
use crate::job::policy::{Budget, HangRule, Policy, Scope};

fn role(name: &str, kind: Kind, restart: Scope, ranks: u32) -> Role {
    let policy = Policy {
        restart,
        budget: Budget { crash: 3, memory: 3, hang: 3, preemption: 3, host: 3 },
        refill_steps: 0,
        backoff_ms: 0,
        backoff_max_ms: 0,
        same_failure_max: 0,
        stop_grace_ms: 500,
        save_grace_ms: 9000,
        failure_grace_ms: 300,
        hang: None,
    };
    let text = json!({"name": name, "kind": kind, "command": ["true"], "ranks": ranks, "policy": policy});
    serde_json::from_value(text).unwrap()
}

fn decider(roles: Vec<Role>) -> Decider {
    let text = json!({"id": "test", "detached": true, "colour": false, "cgroup": false, "roles": roles});
    let job: Job = serde_json::from_value(text).unwrap();
    let history = JobHistory::new(&job);
    Decider::new(job, history)
}

fn worker(rank: u32, code: Option<i32>) -> WorkerReport {
    WorkerReport {
        rank,
        pid: 100 + rank as i32,
        running: code.is_none(),
        exit: code.map(|code| Exit { code: Some(code), signal: None, core: false, memory_exhausted: false }),
        exit_ms: code.map(|_| 50),
        asked: false,
        pulse: None,
        heard_ms: None,
        signs: Signs::default(),
    }
}

fn life(incarnation: u32, workers: Vec<WorkerReport>) -> GangReport {
    let examined = !workers.is_empty() && workers.iter().all(|worker| !worker.running);
    GangReport { incarnation: Some(incarnation), workers, examined, ..GangReport::default() }
}

fn report(now_ms: u64, gangs: Vec<GangReport>) -> Report {
    Report {
        number: 0,
        machine: 0,
        now_ms,
        stop: None,
        gangs,
        unkillable: 0,
        leaves: None,
        stderr: Vec::new(),
    }
}

fn actions(orders: &Orders) -> Vec<Action> {
    orders.gangs.iter().map(|order| order.action.clone()).collect()
}

const WAIT: Action = Action::Wait { until_ms: None };

#[test]
fn a_service_ends_in_the_very_answer_that_says_that_nobody_needs_it() {
    let mut decider =
        decider(vec![role("data", Kind::Service, Scope::Gang, 1), role("train", Kind::Gang, Scope::Gang, 1)]);
    decider.consider(&report(0, vec![GangReport::default(), GangReport::default()]));
    let running = report(10, vec![life(0, vec![worker(0, None)]), life(0, vec![worker(0, None)])]);
    assert_eq!(actions(&decider.consider(&running).1), [WAIT, WAIT]);
    let done = report(60, vec![life(0, vec![worker(0, None)]), life(0, vec![worker(0, Some(0))])]);
    // Nothing else would happen, so nobody would ask again.
    assert_eq!(actions(&decider.consider(&done).1), [Action::End, Action::Succeed]);
}

#[test]
fn nobody_begins_in_the_answer_that_says_that_the_job_failed() {
    let mut last = role("train", Kind::Gang, Scope::Gang, 1);
    last.policy.budget.crash = 0;
    let mut decider = decider(vec![role("eval", Kind::Gang, Scope::Gang, 1), last]);
    decider.consider(&report(0, vec![GangReport::default(), GangReport::default()]));
    let failed = report(60, vec![life(0, vec![worker(0, Some(1))]), life(0, vec![worker(0, Some(1))])]);
    let (_, orders) = decider.consider(&failed);
    assert_eq!(actions(&orders), [Action::Stopped, Action::Fail]);
    assert_eq!(orders.over, Some(Over { phase: Phase::Failed, code: 1 }));
}

#[test]
fn somebody_looks_again_after_sigkill_and_while_stacks_are_taken() {
    let mut one = role("rank", Kind::Gang, Scope::Gang, 2);
    one.policy.hang =
        Some(HangRule { factor: 4.0, least_ms: 100, silence_ms: 0, given: true, stopped_ms: 0 });
    let mut decider = decider(vec![one]);
    decider.consider(&report(0, vec![GangReport::default()]));
    let pulse =
        Pulse { steps: 9, step_at_ms: 10, typical_ms: 10, phase: "step".to_owned(), ..Pulse::default() };
    let still = |rank| WorkerReport { pulse: Some(pulse.clone()), ..worker(rank, None) };
    let stuck = life(0, vec![still(0), still(1)]);
    let (_, orders) = decider.consider(&report(500, vec![stuck.clone()]));
    assert_eq!(actions(&orders), [Action::Look]);
    let looked = GangReport { looks: vec![600], ..stuck.clone() };
    let (_, orders) = decider.consider(&report(601, vec![looked]));
    assert_eq!(actions(&orders), [Action::Witness]);
    assert_eq!(orders.look_at_ms, Some(601 + WITNESS_MS), "stacks may never come");
    let killed = GangReport { ending_since_ms: Some(600), killing_since_ms: Some(900), ..stuck };
    let (_, orders) = decider.consider(&report(901, vec![killed]));
    assert_eq!(actions(&orders), [Action::Kill]);
    assert_eq!(orders.look_at_ms, Some(900 + UNKILLABLE_MS), "they may sleep in the kernel");
}

#[test]
fn without_restarts_and_limit_a_hang_is_told_once_by_whoever_decides_and_ends_nothing() {
    let mut one = role("rank", Kind::Gang, Scope::Gang, 2);
    one.policy.budget.hang = 0;
    one.policy.hang =
        Some(HangRule { factor: 4.0, least_ms: 1000, silence_ms: 0, given: false, stopped_ms: 0 });
    let job = vec![one];
    let mut first = decider(job.clone());
    first.consider(&report(0, vec![GangReport::default()]));
    let pulse =
        Pulse { steps: 9, step_at_ms: 10, typical_ms: 10, phase: "step".to_owned(), ..Pulse::default() };
    let still = |rank| WorkerReport { pulse: Some(pulse.clone()), ..worker(rank, None) };
    let looks = vec![1000, 1500, 2000, 2500];
    let stuck = GangReport { looks, ..life(0, vec![still(0), still(1)]) };
    let (mut entries, orders) = first.consider(&report(2600, vec![stuck.clone()]));
    assert_eq!(actions(&orders), [Action::Warn]);
    assert_eq!(orders.phase, Phase::Running);
    assert!(
        orders.gangs[0].reason.ends_with("nothing is ended, because neither --restarts nor --hang was given")
    );
    // Another coordinator knows from the journal what was said, and repeats it until it was heard.
    let mut second = decider(job);
    second.consider(&report(0, vec![GangReport::default()]));
    entries.retain(|entry| matches!(entry, Entry::Suspected { .. } | Entry::Started { .. }));
    assert_eq!(entries.len(), 2);
    entries.iter().for_each(|entry| second.history.fold(entry));
    let (again, orders) = second.consider(&report(2700, vec![stuck.clone()]));
    assert_eq!((again, actions(&orders)), (Vec::new(), vec![Action::Warn]));
    let told = GangReport { warned: 1, ..stuck };
    let (more, orders) = second.consider(&report(9999, vec![told]));
    assert_eq!((more, actions(&orders)), (Vec::new(), vec![WAIT]));
}

#[test]
fn workers_that_were_never_started_are_lost_and_no_success() {
    let mut decider = decider(vec![role("rank", Kind::Gang, Scope::Gang, 2)]);
    decider.consider(&report(0, vec![GangReport::default()]));
    let (_, orders) = decider.consider(&report(9, vec![life(0, Vec::new())]));
    assert_eq!(actions(&orders), [Action::Start { incarnation: 1 }]);
    assert_eq!(orders.gangs[0].failures[0].what, "the agent was killed");
    let (_, orders) = decider.consider(&report(20, vec![life(1, vec![worker(0, Some(0))])]));
    assert_eq!(actions(&orders), [Action::Start { incarnation: 2 }], "rank 1 was not started");
}

#[test]
fn everybody_is_gone_before_anybody_restarts_and_then_they_come_in_order() {
    let mut train = role("train", Kind::Gang, Scope::All, 1);
    train.after = vec!["data".to_owned()];
    let mut decider = decider(vec![train, role("data", Kind::Service, Scope::Gang, 1)]);
    decider.consider(&report(0, vec![GangReport::default(), GangReport::default()]));
    decider.consider(&report(1, vec![GangReport::default(), life(0, vec![worker(0, None)])]));
    let crashed = vec![life(0, vec![worker(0, Some(1))]), life(0, vec![worker(0, None)])];
    let (_, orders) = decider.consider(&report(60, crashed));
    assert_eq!(actions(&orders), [WAIT, Action::End]);
    assert_eq!(orders.gangs[0].reason, "waits for the end of data");
    let asked = WorkerReport { asked: true, ..worker(0, Some(0)) };
    let gone = report(70, vec![life(0, vec![worker(0, Some(1))]), life(0, vec![asked])]);
    let (_, orders) = decider.consider(&gone);
    assert_eq!(actions(&orders), [WAIT, Action::Start { incarnation: 1 }]);
    assert_eq!(orders.gangs[0].reason, "waits for data");
    let back = report(80, vec![life(0, vec![worker(0, Some(1))]), life(1, vec![worker(0, None)])]);
    // The new life of the service is not ended again for the same failure.
    assert_eq!(actions(&decider.consider(&back).1), [Action::Start { incarnation: 1 }, WAIT]);
}

#[test]
fn an_incident_is_said_again_by_whoever_comes_back() {
    let mut one = role("rank", Kind::Gang, Scope::Gang, 1);
    one.policy.budget.crash = 0;
    let mut first = decider(vec![one]);
    first.consider(&report(0, vec![GangReport::default()]));
    let failed = report(60, vec![life(0, vec![worker(0, Some(1))])]);
    let (_, said) = first.consider(&failed);
    let mut second = Decider::new(first.job.clone(), first.history.clone());
    let (entries, again) = second.consider(&failed);
    assert!(said.gangs[0].incident);
    assert_eq!((entries, again), (Vec::new(), said));
}

#[test]
fn a_stop_that_only_the_journal_knows_keeps_a_gang_from_its_next_life() {
    let mut decider = decider(vec![role("rank", Kind::Gang, Scope::Gang, 1)]);
    decider.consider(&report(0, vec![GangReport::default()]));
    let stop = Stop { by: "somebody".to_owned(), code: 143, ..Stop::default() };
    decider.history.fold(&Entry::Stop { stop });
    let lost = WorkerReport { running: false, ..worker(0, None) };
    let (_, orders) = decider.consider(&report(60, vec![life(0, vec![lost])]));
    assert_eq!(orders.over, Some(Over { phase: Phase::Stopped, code: 143 }));
}

#[test]
fn sigterm_of_a_worker_is_preemption_only_if_the_job_is_told_too() {
    let terminated = |rank, exit_ms| WorkerReport {
        exit: Some(Exit { code: None, signal: Some(libc::SIGTERM), core: false, memory_exhausted: false }),
        exit_ms: Some(exit_ms),
        ..worker(rank, Some(0))
    };
    let stop = Stop { by: "a test".to_owned(), grace_ms: 500, code: 143, ..Stop::default() };
    let causes = |told_ms: Option<u64>| {
        let mut one = role("rank", Kind::Gang, Scope::Gang, 1);
        one.policy.budget.crash = 0;
        let mut decider = decider(vec![one]);
        decider.consider(&report(0, vec![GangReport::default()]));
        let mut last = None;
        for now_ms in [1000, 1500, 2500, 3000, 3500] {
            let told = told_ms.is_some_and(|told_ms| now_ms >= told_ms);
            let stop = told.then(|| stop.clone());
            let gangs =
                vec![life(0, vec![if now_ms > 1000 { terminated(0, 1500) } else { worker(0, None) }])];
            last = decider.consider(&Report { stop, ..report(now_ms, gangs) }).1.over.or(last);
        }
        (decider.history().gangs[0].failures[0].cause, last.unwrap().phase)
    };
    assert_eq!(causes(None), (Cause::Crash, Phase::Failed));
    assert_eq!(causes(Some(1000)), (Cause::Preemption, Phase::Stopped));
    assert_eq!(causes(Some(2500)), (Cause::Preemption, Phase::Stopped));
    assert_eq!(causes(Some(3000)), (Cause::Preemption, Phase::Stopped));
}

#[test]
fn the_failure_of_a_life_is_its_culprits_once_the_logs_were_read() {
    let mut decider = decider(vec![role("rank", Kind::Gang, Scope::Gang, 2)]);
    decider.consider(&report(0, vec![GangReport::default()]));
    decider.consider(&report(10, vec![life(0, vec![worker(0, None), worker(1, None)])]));
    let culprit = Some(crate::coordinator::first_failure::Culprit {
        rank: 1,
        what: "failed: KeyError: 3".to_owned(),
        code: 1,
        of_connection: false,
        failed_ms: None,
    });
    let asked = WorkerReport { asked: true, ..worker(1, Some(1)) };
    let gone = GangReport { culprit, lived_ms: Some(40), ..life(0, vec![worker(0, Some(1)), asked]) };
    let (noted, orders) = decider.consider(&report(60, vec![gone.clone()]));
    assert!(matches!(&noted[noted.len() - 2], Entry::Blamed { failure, .. } if failure.rank == Some(1)));
    assert_eq!(orders.gangs[0].reason, "rank 1 failed: KeyError: 3; restart 1 of 3");
    assert!(decider.consider(&report(61, vec![gone])).0.is_empty(), "said once");
}

fn failure(incarnation: u32, rank: u32) -> Failure {
    Failure {
        incarnation,
        what: "x".to_owned(),
        cause: Cause::Crash,
        rank: Some(rank),
        code: 1,
        likeness: None,
        lived_ms: None,
        step: None,
        at_ms: 0,
    }
}

proptest! {
    /// Goal: no two workers of a role share a slot, and a worker that failed moves only to a slot with fewer failures.
    #[test]
    fn slots_are_never_shared_and_spares_are_used_for_those_that_fail(
        ranks in 1..5u32, spares in 0..4u32, alone in any::<bool>(), victims in proptest::collection::vec(0..5u32, 0..20),
    ) {
        let scope = if alone { Scope::One } else { Scope::Gang };
        let mut decider = decider(vec![Role { spares, ..role("rank", Kind::Gang, scope, ranks) }]);
        for gang in 0..decider.plans.len() {
            let placement = decider.place(gang);
            decider.note(Entry::Ordered { gang, incarnation: 0, placement, reason: String::new(), at_ms: None });
        }
        for victim in victims.into_iter().map(|rank| rank % ranks) {
            let gang = decider.plans.iter().position(|plan| plan.ranks.contains(&victim)).unwrap();
            let incarnation = decider.history.gangs[gang].incarnation.unwrap();
            let before = decider.history.gangs[gang].placement.clone();
            decider.note(Entry::Failed { gang, failure: failure(incarnation, victim) });
            let placement = decider.place(gang);
            let moved = before.iter().zip(&placement).filter(|(old, new)| old != new).count();
            prop_assert!(moved <= 1, "only who failed moves");
            decider.note(Entry::Ordered { gang, incarnation: incarnation + 1, placement, reason: String::new(), at_ms: None });
            let mut all: Vec<u32> = decider.history.gangs.iter().flat_map(|history| history.placement.clone()).collect();
            prop_assert!(all.iter().all(|slot| *slot < ranks + spares));
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            prop_assert_eq!(all.len(), count, "a slot has one worker");
        }
        // With spares, no slot failed twice as long as another was never tried.
        let slots = ranks + spares;
        let charges: Vec<u32> = (0..slots as usize).map(|slot| decider.history.gangs.iter().map(|history| history.charges[slot]).sum()).collect();
        let free = (0..slots).filter(|slot| !decider.history.gangs.iter().any(|history| history.placement.contains(slot)));
        let least_free = free.map(|slot| charges[slot as usize]).min();
        let moved_away = least_free.is_none_or(|least| charges.iter().max().copied().unwrap_or(0) <= least + 1 + u32::from(least == 0));
        prop_assert!(moved_away || spares == 0, "{:?}", charges);
    }
}
