//! H4: any tree, any order of arrival, the same counts, failures and histogram.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::coordinator::first_failure::Culprit;
use crate::coordinator::hang::{Pulse, Signs};
use crate::coordinator::messages::{GangReport, PreparedLife, Report, WorkerReport};
use crate::job::Job;
use crate::job::exit::Exit;
use crate::job::policy::Scope;

/// Ranks of each host.
const RANKS: u32 = 3;

fn job() -> Job {
    let policy = json!({
        "restart": "gang", "budget": {"crash": 3, "memory": 1, "hang": 3, "preemption": 9}, "refill_steps": 0,
        "backoff_ms": 0, "backoff_max_ms": 0, "same_failure_max": 0, "stop_grace_ms": 500, "failure_grace_ms": 300,
        "hang": {"factor": 10.0, "least_ms": 1000, "silence_ms": 0},
    });
    let role = json!({"name": "rank", "kind": "gang", "command": ["true"], "ranks": RANKS, "policy": policy});
    let text = json!({"id": "test", "detached": true, "colour": false, "cgroup": false, "roles": [role]});
    serde_json::from_value(text).unwrap()
}

fn place(host_rank: u32, first_ranks: &[u32]) -> HostPlace<'_> {
    HostPlace {
        host_rank,
        first_ranks,
        address: "10.0.0.1".parse().unwrap(),
        offset_ms: -500,
        within_ms: 0,
        told_to_stop: false,
        pasts: &[],
    }
}

fn summary(host_rank: u32, gang: GangReport, stop: Option<Stop>) -> Summary {
    let report = Report {
        number: 3,
        machine: 0,
        now_ms: 10_000,
        stop,
        gangs: vec![gang],
        unkillable: 0,
        leaves: None,
        stderr: Vec::new(),
    };
    Summary::of_report(&report, &job(), &place(host_rank, &[host_rank * RANKS]))
}

/// Of a host that also has a rank which restarts alone, and maybe processes that cannot be killed.
fn mixed(host_rank: u32, gang: GangReport, stop: Option<Stop>) -> Summary {
    let mut job = job();
    let mut lone = job.roles[0].clone();
    (lone.name, lone.ranks, lone.policy.restart) = ("lone".to_owned(), 1, Scope::One);
    job.roles.push(lone);
    let workers = gang.workers.first().cloned().into_iter().collect();
    let (unkillable, gangs) = (gang.orphans / 2, vec![gang.clone(), GangReport { workers, ..gang }]);
    let report = Report {
        number: 3,
        machine: 0,
        now_ms: 10_000,
        stop,
        gangs,
        unkillable,
        leaves: None,
        stderr: Vec::new(),
    };
    Summary::of_report(&report, &job, &place(host_rank, &[host_rank * RANKS, host_rank]))
}

fn worker(rank: u32, code: Option<i32>, at_ms: u64, step: Option<u64>) -> WorkerReport {
    WorkerReport {
        rank,
        pid: 100,
        running: code.is_none(),
        exit: code.map(|code| Exit { code: Some(code), signal: None, core: false, memory_exhausted: false }),
        exit_ms: code.map(|_| at_ms),
        asked: false,
        pulse: step.map(|step| Pulse {
            step,
            steps: 9,
            step_at_ms: at_ms,
            phase: "step".to_owned(),
            ..Pulse::default()
        }),
        heard_ms: None,
        signs: Signs::default(),
    }
}

fn any_gang() -> impl Strategy<Value = GangReport> {
    let workers = proptest::collection::vec(
        (proptest::option::of(0..3i32), 1000..1020u64, proptest::option::of(0..5000u64)),
        0..=RANKS as usize,
    );
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (proptest::option::of(0..3u32), workers, flags, 0..3u32, proptest::option::of(900..999u64)).prop_map(
        |(incarnation, workers, (lost, queued, of_connection, examined), orphans, since_ms)| {
            let workers: Vec<WorkerReport> = (0..)
                .zip(workers)
                .map(|(rank, (code, at_ms, step))| worker(rank, code, at_ms, step))
                .collect();
            let culprit = Culprit {
                rank: 1,
                what: "exited with code 1".to_owned(),
                code: 1,
                of_connection,
                failed_ms: Some(990 + u64::from(orphans)),
            };
            GangReport {
                incarnation,
                queued: queued.then(|| format!("{orphans} processors")),
                workers: if lost { Vec::new() } else { workers },
                orphans,
                culprit: examined.then_some(culprit),
                examined,
                ending_since_ms: since_ms,
                prepared: queued.then_some(PreparedLife { incarnation: 3, port: Some(2000) }),
                ..GangReport::default()
            }
        },
    )
}

fn any_stop() -> impl Strategy<Value = Option<Stop>> {
    let stop =
        (0..3u8, 0..500u64, any::<bool>(), any::<bool>()).prop_map(|(by, grace_ms, forced, failed)| Stop {
            by: format!("person {by}"),
            grace_ms,
            forced,
            failed,
            code: i32::from(by),
            ..Stop::default()
        });
    proptest::option::weighted(0.2, stop)
}

fn summaries() -> impl Strategy<Value = Vec<Summary>> {
    proptest::collection::vec((any_gang(), any_stop()), 1..40).prop_map(|hosts| {
        (0..).zip(hosts).map(|(host_rank, (gang, stop))| mixed(host_rank, gang, stop)).collect()
    })
}

/// Joins summaries two by two, as some tree and some order of arrival would.
fn joined(mut parts: Vec<Summary>, choices: &[(usize, usize)]) -> Summary {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let (one, other) = *choices.next().unwrap();
        let first = parts.swap_remove(one % parts.len());
        let second = parts.swap_remove(other % parts.len());
        // On the way it is text.
        let text = serde_json::to_string(&first.merge(&second)).unwrap();
        parts.push(serde_json::from_str(&text).unwrap());
    }
    parts.pop().unwrap_or_default()
}

proptest! {
    /// Goal: H4. Method: hosts with arbitrary reports, joined by two arbitrary trees.
    #[test]
    fn any_tree_and_any_order_of_arrival_say_the_same(
        parts in summaries(),
        one in proptest::collection::vec((0..1000usize, 0..1000usize), 1..50),
        other in proptest::collection::vec((0..1000usize, 0..1000usize), 1..50),
    ) {
        let (left, right) = (joined(parts.clone(), &one), joined(parts.clone(), &other));
        prop_assert_eq!(&left, &right);
        prop_assert!(!left.overlapping);
        let lives = &left.gangs[0].lives;
        let counted: u32 = lives.iter().map(|life| life.workers).sum();
        prop_assert_eq!(counted, parts.len() as u32 * RANKS, "every worker is counted once");
        let failures: u64 = parts.iter().flat_map(|part| &part.gangs[0].lives).map(|life| life.failures.count()).sum();
        prop_assert_eq!(lives.iter().map(|life| life.failures.count()).sum::<u64>(), failures);
        prop_assert!(lives.iter().all(|life| life.failures.first.len() <= FAILURES_MAX));
        let alone: Vec<u32> = left.alone[&1].keys().copied().collect();
        prop_assert_eq!(alone, (0..parts.len() as u32).collect::<Vec<_>>(), "every rank that restarts alone is told apart");
        let stuck: u64 = parts.iter().map(|part| part.stuck.count()).sum();
        prop_assert_eq!(left.stuck.count(), stuck);
        prop_assert!(left.quiet.ranges().iter().flat_map(Clone::clone).all(|rank| left.stuck.contains(rank)));
    }

    #[test]
    fn a_host_that_is_counted_twice_is_noticed_wherever_they_meet(
        parts in summaries(), twice in 0..1000usize, choices in proptest::collection::vec((0..1000usize, 0..1000usize), 1..50),
    ) {
        let mut parts = parts;
        parts.push(parts[twice % parts.len()].clone());
        prop_assert!(joined(parts, &choices).overlapping);
    }
}

#[test]
fn the_summary_of_a_host_is_some_hundred_bytes() {
    let gang = GangReport {
        incarnation: Some(4),
        workers: (0..8).map(|rank| worker(rank, None, 9900, Some(12_345))).collect(),
        ..GangReport::default()
    };
    let summary = summary(1234, gang, None);
    let text = serde_json::to_string(&summary).unwrap();
    assert!(text.len() < 400, "{} bytes: {text}", text.len());
    assert_eq!(summary.gangs[0].lives[0].progress.step, Some(12_345));
    assert_eq!(summary.steps.buckets().map(|(_, count)| count).sum::<u64>(), 8);
}

#[test]
fn moments_are_the_coordinators_and_ranks_are_the_jobs() {
    let gang = GangReport {
        incarnation: Some(0),
        workers: vec![
            worker(0, Some(0), 9000, None),
            worker(1, Some(3), 9100, None),
            worker(2, None, 0, None),
        ],
        killing_since_ms: Some(9200),
        ..GangReport::default()
    };
    let life = summary(5, gang, None).gangs[0].lives[0].clone();
    let failure = &life.failures.first[0];
    assert_eq!((failure.rank, failure.host_rank, failure.at_ms), (16, 5, 8600));
    assert_eq!((life.succeeded(), life.gone(), life.running), (1, 2, 1));
    assert_eq!(life.killing, Told { hosts: 1, first_ms: Some(8700) });
}

#[test]
fn who_lost_a_connection_comes_after_whoever_failed_by_itself() {
    let failed = |host_rank, at_ms, of_connection| {
        let culprit = Culprit {
            rank: 0,
            what: "exited with code 1".to_owned(),
            code: 1,
            of_connection,
            failed_ms: Some(at_ms),
        };
        let workers = (0..RANKS).map(|rank| worker(rank, Some(1), at_ms, None)).collect();
        let gang = GangReport {
            incarnation: Some(0),
            workers,
            culprit: Some(culprit),
            examined: true,
            ..GangReport::default()
        };
        summary(host_rank, gang, None)
    };
    let all = failed(0, 5000, true).merge(&failed(1, 5300, false)).merge(&failed(2, 5100, true));
    let life = &all.gangs[0].lives[0];
    assert_eq!(life.failures.first[0].host_rank, 1);
    assert_eq!(life.blame.as_ref().unwrap().rank, 3);
    assert_eq!(life.examined, 3);
}
