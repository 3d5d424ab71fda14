//! What to do with a gang, decided purely (P1): from the time, the gang's state and its policy, with a reason.
//!
//! The agent asks after everything that happens and does what it is told. Nothing here reads a clock or a process, so every
//! rule is tested without starting one.

use serde::{Deserialize, Serialize};

/// Processes that are still there this long after SIGKILL sleep in the kernel; the job does not wait for them.
pub const UNKILLABLE_MS: u64 = 5000;

/// When a gang is given another life, and how long an end may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// How many lives a gang gets after its first.
    pub restarts_max: u32,
    /// The wait before the second restart in a row; doubled for each further one. The first comes at once.
    pub backoff_ms: u64,
    /// The longest such wait.
    pub backoff_max_ms: u64,
    /// How often in a row the same failure may happen before restarting is pointless. 0: as often as it likes.
    pub same_failure_max: u32,
    /// From SIGTERM to SIGKILL when somebody asks the job to stop.
    pub stop_grace_ms: u64,
    /// From SIGTERM to SIGKILL for ranks that lost a peer.
    pub failure_grace_ms: u64,
}

/// Why an incarnation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which life it ended.
    pub incarnation: u32,
    /// What happened, in words: `rank 3 was killed by SIGKILL`.
    pub what: String,
    /// What it has in common with the same failure at another time: the last line of a traceback, for one. Without
    /// such evidence two failures are never the same.
    pub likeness: Option<String>,
    /// When it was noticed.
    pub at_ms: u64,
}

/// Somebody wants the job to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Who, in words: `SIGINT from the terminal`.
    pub by: String,
    /// Until SIGKILL.
    pub grace_ms: u64,
    /// Not even that long.
    pub forced: bool,
}

/// What is known about a gang at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gang {
    /// Which life this is, from 0.
    pub incarnation: u32,
    /// Ranks that run.
    pub running: u32,
    /// Ranks that ended with success.
    pub succeeded: u32,
    /// Living descendants of ranks that are gone.
    pub orphans: u32,
    /// The first failure of every life that failed, in order.
    pub failures: Vec<Failure>,
    /// Somebody wants it to end.
    pub stop: Option<Stop>,
    /// When the ranks were sent SIGTERM.
    pub ending_since_ms: Option<u64>,
    /// When everybody was first sent SIGKILL.
    pub killing_since_ms: Option<u64>,
}

/// What the agent is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until something happens or this moment.
    Wait {
        /// When to ask again at the latest.
        until_ms: Option<u64>,
    },
    /// Send SIGTERM to the ranks.
    End,
    /// Send SIGKILL to the whole tree.
    Kill,
    /// Start every rank again.
    Restart {
        /// The number of the new life.
        incarnation: u32,
    },
    /// The job did what it should.
    Succeed,
    /// The job is over without success.
    Fail,
    /// The job is over because somebody asked.
    FinishStopped,
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
    let failure = gang.failures.iter().find(|failure| failure.incarnation == gang.incarnation);
    let given_up = gang.killing_since_ms.is_some_and(|since| now_ms >= since.saturating_add(UNKILLABLE_MS));
    if gang.running + gang.orphans > 0 && !given_up {
        return while_alive(now_ms, gang, policy, failure);
    }
    if let Some(stop) = &gang.stop {
        return Verdict::new(Action::FinishStopped, format!("stopped by {}", stop.by));
    }
    match failure {
        Some(failure) => after_failure(now_ms, gang, policy, failure),
        None if given_up => {
            Verdict::new(Action::Fail, "some processes sleep in the kernel and cannot be killed")
        }
        None => Verdict::new(Action::Succeed, format!("all {} ranks succeeded", gang.succeeded)),
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
    let Some(since) = gang.ending_since_ms else { return Verdict::new(Action::End, why) };
    let kill_at_ms = since.saturating_add(grace_ms);
    if now_ms >= kill_at_ms {
        return Verdict::new(
            Action::Kill,
            format!("{why}; {grace_ms} ms after SIGTERM some are still there"),
        );
    }
    Verdict::new(Action::Wait { until_ms: Some(kill_at_ms) }, why)
}

fn after_failure(now_ms: u64, gang: &Gang, policy: &Policy, failure: &Failure) -> Verdict {
    let what = &failure.what;
    if gang.incarnation >= policy.restarts_max {
        let spent = match policy.restarts_max {
            0 => "no restarts were asked for".to_owned(),
            max => format!("all {max} restarts are spent"),
        };
        return Verdict::new(Action::Fail, format!("{what}; {spent}"));
    }
    let alike = repeats(&gang.failures);
    if policy.same_failure_max > 0 && alike >= policy.same_failure_max {
        return Verdict::new(
            Action::Fail,
            format!("{what}; the same failure {alike} times in a row, so another try is pointless"),
        );
    }
    let restart_at_ms = failure.at_ms.saturating_add(backoff_ms(gang.incarnation, policy));
    if now_ms < restart_at_ms {
        let reason = format!("{what}; restart in {} ms", restart_at_ms - now_ms);
        return Verdict::new(Action::Wait { until_ms: Some(restart_at_ms) }, reason);
    }
    let next = gang.incarnation + 1;
    Verdict::new(
        Action::Restart { incarnation: next },
        format!("{what}; restart {next} of {}", policy.restarts_max),
    )
}

/// How many of the last failures are the same.
fn repeats(failures: &[Failure]) -> u32 {
    let Some(likeness) = failures.last().and_then(|last| last.likeness.as_ref()) else { return 0 };
    let same = failures.iter().rev().take_while(|failure| failure.likeness.as_ref() == Some(likeness));
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(restarts_max: u32) -> Policy {
        Policy {
            restarts_max,
            backoff_ms: 100,
            backoff_max_ms: 1000,
            same_failure_max: 2,
            stop_grace_ms: 500,
            failure_grace_ms: 300,
        }
    }

    fn failure(incarnation: u32, likeness: Option<&str>, at_ms: u64) -> Failure {
        let what = "rank 3 was killed by SIGKILL".to_owned();
        Failure { incarnation, what, likeness: likeness.map(str::to_owned), at_ms }
    }

    #[test]
    fn a_healthy_gang_is_left_alone() {
        let gang = Gang { running: 7, succeeded: 1, ..Gang::default() };
        let verdict = decide(0, &gang, &policy(3));
        assert_eq!(verdict.action, Action::Wait { until_ms: None });
        assert_eq!(verdict.reason, "7 ranks run, 1 succeeded");
    }

    #[test]
    fn a_failure_ends_the_others_then_kills_them_then_restarts_all() {
        let mut gang = Gang { running: 7, failures: vec![failure(0, None, 10)], ..Gang::default() };
        assert_eq!(decide(10, &gang, &policy(3)).action, Action::End);
        gang.ending_since_ms = Some(10);
        assert_eq!(decide(309, &gang, &policy(3)).action, Action::Wait { until_ms: Some(310) });
        assert_eq!(decide(310, &gang, &policy(3)).action, Action::Kill);
        gang.running = 0;
        let verdict = decide(311, &gang, &policy(3));
        assert_eq!(verdict.action, Action::Restart { incarnation: 1 });
        assert_eq!(verdict.reason, "rank 3 was killed by SIGKILL; restart 1 of 3");
    }

    #[test]
    fn restarts_in_a_row_wait_longer_and_longer_up_to_a_limit() {
        let waits: Vec<u64> = (0..7).map(|n| backoff_ms(n, &policy(9))).collect();
        assert_eq!(waits, [0, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn the_same_failure_twice_stops_but_different_ones_and_ones_without_evidence_do_not() {
        let twice = |first, second| {
            let failures = vec![failure(0, first, 0), failure(1, second, 0)];
            decide(9999, &Gang { incarnation: 1, failures, ..Gang::default() }, &policy(5)).action
        };
        assert_eq!(twice(Some("KeyError: 3"), Some("KeyError: 3")), Action::Fail);
        assert_eq!(twice(Some("KeyError: 3"), Some("KeyError: 4")), Action::Restart { incarnation: 2 });
        assert_eq!(twice(None, None), Action::Restart { incarnation: 2 });
    }

    #[test]
    fn what_cannot_be_killed_does_not_hold_the_job_for_ever() {
        let gang = Gang {
            running: 1,
            failures: vec![failure(0, None, 0)],
            ending_since_ms: Some(0),
            killing_since_ms: Some(300),
            ..Gang::default()
        };
        assert_eq!(decide(5299, &gang, &policy(0)).action, Action::Kill);
        assert_eq!(decide(5300, &gang, &policy(0)).action, Action::Fail);
    }

    fn gangs() -> impl Strategy<Value = Gang> {
        let stop = proptest::option::of((0..1000u64, any::<bool>()));
        let likes = proptest::collection::vec((proptest::option::of(0..2u8), 0..2000u64), 0..6);
        let moments = (proptest::option::of(0..2000u64), proptest::option::of(0..2000u64));
        (0..4u32, 0..4u32, 0..3u32, stop, likes, moments, any::<bool>()).prop_map(
            |(running, succeeded, orphans, stop, likes, (ending_since_ms, killing_since_ms), fresh)| Gang {
                incarnation: u32::try_from(likes.len()).unwrap() - u32::from(!fresh && !likes.is_empty()),
                running,
                succeeded,
                orphans,
                failures: (0..)
                    .zip(likes)
                    .map(|(n, (like, at_ms))| failure(n, like.map(|l| if l == 0 { "a" } else { "b" }), at_ms))
                    .collect(),
                stop: stop.map(|(grace_ms, forced)| Stop { by: "a test".to_owned(), grace_ms, forced }),
                ending_since_ms,
                killing_since_ms,
            },
        )
    }

    proptest! {
        #[test]
        fn every_verdict_keeps_the_promises(now_ms in 0..10_000u64, gang in gangs(), max in 0..6u32) {
            let policy = policy(max);
            let verdict = decide(now_ms, &gang, &policy);
            prop_assert_eq!(&verdict, &decide(now_ms, &gang, &policy), "the same question has the same answer");
            prop_assert!(!verdict.reason.is_empty());
            let alive = gang.running + gang.orphans > 0;
            let given_up = gang.killing_since_ms.is_some_and(|since| now_ms >= since + UNKILLABLE_MS);
            match verdict.action {
                Action::Restart { incarnation } => {
                    prop_assert!(incarnation <= max, "the budget is kept");
                    prop_assert_eq!(incarnation, gang.incarnation + 1, "lives are counted one by one");
                    prop_assert!(gang.stop.is_none(), "who was asked to stop is not restarted");
                    prop_assert!(!alive || given_up, "two lives never overlap");
                }
                Action::Succeed | Action::Fail | Action::FinishStopped => prop_assert!(!alive || given_up),
                Action::Wait { until_ms: Some(until_ms) } => prop_assert!(until_ms > now_ms, "a wait ends later"),
                Action::Wait { until_ms: None } => prop_assert!(gang.running > 0 && gang.stop.is_none()),
                Action::End => prop_assert!(alive && gang.ending_since_ms.is_none()),
                Action::Kill => prop_assert!(alive),
            }
        }

        #[test]
        fn a_gang_that_always_fails_ends_after_its_budget(max in 0..6u32) {
            let policy = policy(max);
            let mut gang = Gang::default();
            let mut now_ms = 0;
            for _ in 0..100 {
                if gang.failures.len() == gang.incarnation as usize {
                    gang.failures.push(failure(gang.incarnation, None, now_ms));
                }
                match decide(now_ms, &gang, &policy).action {
                    Action::Restart { incarnation } => gang.incarnation = incarnation,
                    Action::Wait { until_ms: Some(until_ms) } => now_ms = until_ms,
                    Action::Fail => break,
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert_eq!(gang.incarnation, max);
        }
    }
}
