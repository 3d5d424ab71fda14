//! The rules of [`decide`], one by one, and what holds for every gang.

use proptest::prelude::*;

use super::*;
use crate::job::policy::{Budget, Scope};

fn policy(restarts: u32) -> Policy {
    Policy {
        restart: Scope::Gang,
        budget: Budget { crash: restarts, memory: 1, hang: restarts, preemption: 50, host: 0 },
        refill_steps: 100,
        backoff_ms: 100,
        backoff_max_ms: 1000,
        same_failure_max: 2,
        stop_grace_ms: 500,
        save_grace_ms: 9000,
        failure_grace_ms: 300,
        hang: None,
    }
}

fn failure(incarnation: u32, likeness: Option<&str>, at_ms: u64) -> Failure {
    Failure {
        incarnation,
        what: "rank 3 was killed by SIGKILL".to_owned(),
        cause: Cause::Crash,
        rank: Some(3),
        code: 137,
        likeness: likeness.map(str::to_owned),
        lived_ms: None,
        step: None,
        at_ms,
    }
}

fn alive(running: u32) -> Gang {
    Gang { incarnation: Some(0), running, ..Gang::new(Kind::Gang) }
}

fn stop(grace_ms: u64) -> Stop {
    Stop { by: "a test".to_owned(), grace_ms, code: 143, ..Stop::default() }
}

#[test]
fn a_healthy_gang_is_left_alone() {
    let verdict = decide(0, &Gang { succeeded: 1, ..alive(7) }, &policy(3));
    assert_eq!(verdict.action, Action::Wait { until_ms: None });
    assert_eq!(verdict.reason, "7 ranks run, 1 succeeded");
}

#[test]
fn a_gang_begins_when_nothing_holds_it_back() {
    let mut gang = Gang::new(Kind::Gang);
    assert_eq!(decide(0, &gang, &policy(0)).action, Action::Start { incarnation: 0 });
    gang.waits_for = Some("prepare".to_owned());
    assert_eq!(decide(0, &gang, &policy(0)).reason, "waits for prepare");
    gang.stop = Some(stop(10));
    assert_eq!(decide(0, &gang, &policy(0)).action, Action::Stopped);
}

#[test]
fn a_failure_ends_the_others_then_kills_them_then_restarts_all() {
    let mut gang = Gang { failures: vec![failure(0, None, 10)], ..alive(7) };
    assert_eq!(decide(10, &gang, &policy(3)).action, Action::End);
    gang.ending_since_ms = Some(10);
    assert_eq!(decide(309, &gang, &policy(3)).action, Action::Wait { until_ms: Some(310) });
    assert_eq!(decide(310, &gang, &policy(3)).action, Action::Kill);
    gang.running = 0;
    let verdict = decide(311, &gang, &policy(3));
    assert_eq!(verdict.action, Action::Start { incarnation: 1 });
    assert_eq!(verdict.reason, "rank 3 was killed by SIGKILL; restart 1 of 3");
}

#[test]
fn who_looks_for_notices_gets_one_then_sigterm_then_sigkill() {
    let mut gang = Gang { listens: true, stop: Some(stop(1000)), ..alive(2) };
    assert_eq!(
        decide(50, &gang, &policy(0)).action,
        Action::Notify { deadline_ms: 750, save_by_ms: 50, signal: 0 }
    );
    gang.notified_since_ms = Some(50);
    assert_eq!(decide(60, &gang, &policy(0)).action, Action::Wait { until_ms: Some(750) });
    assert_eq!(decide(750, &gang, &policy(0)).action, Action::End);
    gang.ending_since_ms = Some(750);
    assert_eq!(decide(751, &gang, &policy(0)).action, Action::Wait { until_ms: Some(1050) });
    assert_eq!(decide(1050, &gang, &policy(0)).action, Action::Kill);
}

#[test]
fn what_a_person_sends_comes_at_once_then_sigterm_then_sigkill() {
    let stop = Stop { signal: libc::SIGINT, ..stop(1000) };
    let mut gang = Gang { stop: Some(stop), ..alive(2) };
    assert_eq!(decide(50, &gang, &policy(0)).action, Action::Interrupt { signal: libc::SIGINT });
    gang.signalled_since_ms = Some(50);
    assert_eq!(decide(60, &gang, &policy(0)).action, Action::Wait { until_ms: Some(750) });
    assert_eq!(decide(750, &gang, &policy(0)).action, Action::End);
    gang.ending_since_ms = Some(750);
    assert_eq!(decide(751, &gang, &policy(0)).action, Action::Wait { until_ms: Some(1050) });
    assert_eq!(decide(1050, &gang, &policy(0)).action, Action::Kill);
}

#[test]
fn who_looks_for_notices_gets_what_a_person_sends_only_when_most_of_the_time_is_over() {
    let stop = Stop { signal: libc::SIGINT, ..stop(1000) };
    let mut gang = Gang { listens: true, stop: Some(stop), ..alive(2) };
    let first = Action::Notify { deadline_ms: 750, save_by_ms: 50, signal: libc::SIGINT };
    assert_eq!(decide(50, &gang, &policy(0)).action, first);
    gang.notified_since_ms = Some(50);
    assert_eq!(decide(749, &gang, &policy(0)).action, Action::Wait { until_ms: Some(750) });
    assert_eq!(decide(750, &gang, &policy(0)).action, Action::Interrupt { signal: libc::SIGINT });
    gang.signalled_since_ms = Some(750);
    assert_eq!(decide(899, &gang, &policy(0)).action, Action::Wait { until_ms: Some(900) });
    assert_eq!(decide(900, &gang, &policy(0)).action, Action::End);
    gang.ending_since_ms = Some(900);
    assert_eq!(decide(1050, &gang, &policy(0)).action, Action::Kill);
}

#[test]
fn a_save_puts_off_every_signal_until_it_is_over_or_had_its_time() {
    let stop = Stop { signal: libc::SIGINT, save_ms: 9000, ..stop(1000) };
    let mut gang = Gang { saving: true, stop: Some(stop), ..alive(2) };
    let first = Action::Notify { deadline_ms: 750, save_by_ms: 9050, signal: 0 };
    assert_eq!(decide(50, &gang, &policy(0)).action, first);
    gang.notified_since_ms = Some(50);
    assert_eq!(decide(5000, &gang, &policy(0)).action, Action::Wait { until_ms: Some(5100) });
    assert_eq!(decide(9050, &gang, &policy(0)).action, Action::Interrupt { signal: libc::SIGINT });
    gang.saving = false;
    assert_eq!(decide(5000, &gang, &policy(0)).action, Action::Interrupt { signal: libc::SIGINT });
    gang.signalled_since_ms = Some(5000);
    assert_eq!(decide(5001, &gang, &policy(0)).action, Action::Wait { until_ms: Some(5150) });
    assert_eq!(decide(5150, &gang, &policy(0)).action, Action::End);
    gang.ending_since_ms = Some(5150);
    assert_eq!(decide(5151, &gang, &policy(0)).action, Action::Wait { until_ms: Some(5300) });
    assert_eq!(decide(5300, &gang, &policy(0)).action, Action::Kill);
    let forced = gang.stop.clone().map(|stop| Stop { forced: true, ..stop });
    let gang = Gang { saving: true, stop: forced, signalled_since_ms: None, ending_since_ms: None, ..gang };
    assert_eq!(decide(60, &gang, &policy(0)).action, Action::Kill);
}

#[test]
fn stacks_are_taken_before_a_hang_is_ended_but_not_waited_for_for_ever() {
    let hang = Failure { cause: Cause::Hang, ..failure(0, None, 100) };
    let mut gang = Gang { failures: vec![hang], ..alive(4) };
    assert_eq!(decide(100, &gang, &policy(1)).action, Action::Witness);
    assert_eq!(decide(100 + WITNESS_MS, &gang, &policy(1)).action, Action::End);
    gang.witnessed = true;
    assert_eq!(decide(101, &gang, &policy(1)).action, Action::End);
}

#[test]
fn restarts_in_a_row_wait_longer_and_longer_up_to_a_limit() {
    let waits: Vec<u64> = (0..7).map(|n| backoff_ms(n, &policy(9))).collect();
    assert_eq!(waits, [0, 100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn the_same_failure_twice_at_the_same_step_stops_but_others_do_not() {
    let twice = |first: (Option<&str>, u64), second: (Option<&str>, u64)| {
        let one = |n, (likeness, step): (Option<&str>, u64)| Failure {
            step: Some(step),
            ..failure(n, likeness, 0)
        };
        let failures = vec![one(0, first), one(1, second)];
        let gang = Gang { incarnation: Some(1), failures, ..Gang::new(Kind::Gang) };
        decide(9999, &gang, &policy(5)).action
    };
    assert_eq!(twice((Some("KeyError: 3"), 7), (Some("KeyError: 3"), 7)), Action::Fail);
    let again = Action::Start { incarnation: 2 };
    assert_eq!(twice((Some("KeyError: 3"), 7), (Some("KeyError: 3"), 9)), again);
    assert_eq!(twice((Some("KeyError: 3"), 7), (Some("KeyError: 4"), 7)), again);
    assert_eq!(twice((None, 7), (None, 7)), again);
}

#[test]
fn where_steps_are_unknown_only_lives_as_short_as_a_start_fail_at_the_same_place() {
    let twice = |first_ms: Option<u64>, second_ms: Option<u64>, step: Option<u64>| {
        let one = |n, lived_ms| Failure { lived_ms, ..failure(n, Some("KeyError: # at x.py:3 f"), 0) };
        let failures = vec![one(0, first_ms), Failure { step, ..one(1, second_ms) }];
        let gang = Gang { incarnation: Some(1), failures, ..Gang::new(Kind::Gang) };
        decide(9999, &gang, &policy(5)).action
    };
    let again = Action::Start { incarnation: 2 };
    assert_eq!(twice(Some(900), Some(START_MS), None), Action::Fail);
    assert_eq!(twice(Some(900), Some(START_MS + 1), None), again);
    assert_eq!(twice(None, Some(900), None), again);
    assert_eq!(twice(Some(900), Some(900), Some(0)), again);
}

#[test]
fn sigterm_of_a_worker_is_a_crash_unless_the_job_is_told_soon() {
    let term = Failure { code: 143, ..failure(0, None, 1000) };
    let mut gang = Gang { incarnation: Some(0), failures: vec![term], ..Gang::new(Kind::Gang) };
    assert_eq!(decide(1100, &gang, &policy(0)).action, Action::Wait { until_ms: Some(3000) });
    assert_eq!(decide(3000, &gang, &policy(0)).action, Action::Fail);
    assert_eq!(decide(3000, &gang, &policy(1)).action, Action::Start { incarnation: 1 });
    gang.stop = Some(stop(10));
    assert_eq!(decide(1100, &gang, &policy(0)).action, Action::Stopped);
}

#[test]
fn progress_makes_budgets_full_again_and_causes_have_their_own() {
    let at = |n, step| Failure { step: Some(step), ..failure(n, None, 0) };
    let failures = [at(0, 50), at(1, 120), at(2, 130), at(3, 120)];
    // Life 1 came no 100 steps further than life 0; nobody did.
    assert_eq!(charged(&failures, 100, Cause::Crash), (4, 4));
    assert_eq!(charged(&failures, 70, Cause::Crash), (3, 3));
    assert_eq!(charged(&failures, 0, Cause::Crash), (4, 4));
    assert_eq!(charged(&failures, 100, Cause::Memory), (0, 4));
    let memory = Failure { cause: Cause::Memory, ..failure(0, None, 0) };
    let gang = |failures: Vec<Failure>| Gang {
        incarnation: Some(u32::try_from(failures.len()).unwrap() - 1),
        failures,
        ..Gang::new(Kind::Gang)
    };
    assert_eq!(decide(9, &gang(vec![memory.clone()]), &policy(0)).action, Action::Start { incarnation: 1 });
    let again = Failure { incarnation: 1, ..memory.clone() };
    assert_eq!(decide(9999, &gang(vec![memory, again]), &policy(0)).action, Action::Fail);
}

#[test]
fn what_cannot_be_killed_does_not_hold_the_job_for_ever() {
    let gang = Gang {
        failures: vec![failure(0, None, 0)],
        ending_since_ms: Some(0),
        killing_since_ms: Some(300),
        ..alive(1)
    };
    assert_eq!(decide(5299, &gang, &policy(0)).action, Action::Kill);
    assert_eq!(decide(5300, &gang, &policy(0)).action, Action::Fail);
    // Ranks that succeeded did, whoever they leave behind.
    let orphaned = Gang { running: 0, orphans: 1, succeeded: 1, failures: Vec::new(), ..gang };
    assert_eq!(decide(5300, &orphaned, &policy(1)).action, Action::Succeed);
}

fn gangs() -> impl Strategy<Value = Gang> {
    let stops = proptest::option::of((0..1000u64, any::<bool>()));
    let likes = proptest::collection::vec((proptest::option::of(0..2u8), 0..2000u64, 0..3u8), 0..6);
    let moment = || proptest::option::of(0..2000u64);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0..4u32, 0..4u32, 0..3u32, stops, likes, (moment(), moment(), moment()), flags).prop_map(
        |(
            running,
            succeeded,
            orphans,
            stopped,
            likes,
            moments,
            (fresh, listens, saving, witnessed, queued),
        )| Gang {
            kind: Kind::Gang,
            incarnation: Some(u32::try_from(likes.len()).unwrap() - u32::from(!fresh && !likes.is_empty())),
            first_life: 0,
            queued: (queued && running + orphans == 0).then(|| "2 GPUs".to_owned()),
            waits_for: None,
            running,
            succeeded,
            orphans,
            failures: (0..)
                .zip(likes)
                .map(|(n, (like, at_ms, cause))| Failure {
                    cause: [Cause::Crash, Cause::Memory, Cause::Hang][cause as usize],
                    ..failure(n, like.map(|l| if l == 0 { "a" } else { "b" }), at_ms)
                })
                .collect(),
            stop: stopped.map(|(grace_ms, forced)| Stop {
                forced,
                signal: if witnessed { libc::SIGINT } else { libc::SIGTERM },
                save_ms: 10 * grace_ms,
                ..stop(grace_ms)
            }),
            listens,
            saving,
            witnessed,
            notified_since_ms: moments.0,
            signalled_since_ms: moments.1.filter(|_| saving),
            ending_since_ms: moments.1,
            killing_since_ms: moments.2,
        },
    )
}

proptest! {
    #[test]
    fn every_verdict_keeps_the_promises(now_ms in 0..30_000u64, gang in gangs(), max in 0..6u32) {
        let policy = policy(max);
        let verdict = decide(now_ms, &gang, &policy);
        prop_assert_eq!(&verdict, &decide(now_ms, &gang, &policy), "the same question has the same answer");
        prop_assert!(!verdict.reason.is_empty());
        let alive = gang.running + gang.orphans > 0;
        let given_up = gang.killing_since_ms.is_some_and(|since| now_ms >= since + UNKILLABLE_MS);
        match verdict.action {
            Action::Start { incarnation } => {
                let last = gang.failures.last().unwrap();
                prop_assert!(charged(&gang.failures, 100, last.cause).0 <= policy.budget.of(last.cause), "the budget is kept");
                prop_assert_eq!(Some(incarnation), gang.incarnation.map(|n| n + 1), "lives are counted one by one");
                prop_assert!(gang.stop.is_none(), "who was asked to stop is not restarted");
                prop_assert!(!alive || given_up, "two lives never overlap");
            }
            Action::Succeed | Action::Fail | Action::Stopped => prop_assert!(!alive || given_up),
            Action::Wait { until_ms: Some(until_ms) } => prop_assert!(until_ms > now_ms, "a wait ends later"),
            Action::Wait { until_ms: None } => prop_assert!(gang.queued.is_some() || (gang.running > 0 && gang.stop.is_none())),
            Action::Notify { .. } => prop_assert!(alive && (gang.listens || gang.saving) && gang.notified_since_ms.is_none()),
            Action::Interrupt { signal } => prop_assert!(alive && signal == libc::SIGINT && gang.ending_since_ms.is_none()),
            Action::Witness => prop_assert!(alive && !gang.witnessed && gang.ending_since_ms.is_none()),
            Action::End => prop_assert!(alive && gang.ending_since_ms.is_none()),
            Action::Kill => prop_assert!(alive),
            Action::Prepare { .. } => prop_assert!(false, "one host has nobody to wait for"),
            Action::Look | Action::Warn => prop_assert!(false, "these follow from progress, which is judged elsewhere"),
            Action::Leave => prop_assert!(false, "one host makes room for nobody"),
        }
    }

    /// Goal: budgets refill with progress and with nothing else. Method: counted again, life by life, from the newest back.
    #[test]
    fn what_is_charged_is_what_came_since_the_last_progress(
        lives in proptest::collection::vec((proptest::option::of(0..500u64), 0..4u8), 0..12), refill in 0..200u64,
    ) {
        let causes = [Cause::Crash, Cause::Memory, Cause::Hang, Cause::Preemption];
        let failures: Vec<Failure> = (0..).zip(&lives)
            .map(|(n, (step, cause))| Failure { step: *step, cause: causes[*cause as usize], ..failure(n, None, 0) })
            .collect();
        let progress = |at: usize| {
            let best = failures[..at].iter().filter_map(|failure| failure.step).max().unwrap_or(0);
            refill > 0 && failures[at].step.is_some_and(|step| step >= best + refill)
        };
        let since = (0..failures.len()).rev().find(|at| progress(*at)).unwrap_or(0);
        for cause in causes {
            let of_cause = failures[since..].iter().filter(|failure| failure.cause == cause).count();
            prop_assert_eq!(charged(&failures, refill, cause), (of_cause as u32, (failures.len() - since) as u32));
        }
        let endless = [Failure { step: Some(u64::MAX), ..failure(0, None, 0) }, Failure { step: Some(u64::MAX), ..failure(1, None, 0) }];
        // A worker may report any number.
        prop_assert!(charged(&endless, refill, Cause::Crash).1 <= 2);
    }

    #[test]
    fn a_gang_that_always_fails_ends_after_its_budget(max in 0..6u32) {
        let policy = policy(max);
        let mut gang = Gang { incarnation: Some(0), ..Gang::new(Kind::Gang) };
        let mut now_ms = 0;
        for _ in 0..100 {
            let life = gang.incarnation.unwrap();
            if gang.failures.len() == life as usize {
                gang.failures.push(failure(life, None, now_ms));
            }
            match decide(now_ms, &gang, &policy).action {
                Action::Start { incarnation } => gang.incarnation = Some(incarnation),
                Action::Wait { until_ms: Some(until_ms) } => now_ms = until_ms,
                Action::Fail => break,
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(gang.incarnation, Some(max));
    }
}
