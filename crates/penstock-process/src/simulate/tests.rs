//! Promises of imagined jobs: exact accounts, faults as often as was said, and choices that cost what they should.

use proptest::prelude::*;
use serde_json::json;

use super::accounts::Account;
use super::faults::schedule;
use super::plan::{CausePlan, Loses, SimulationPlan, Times};
use super::{Outcome, simulate, trace};
use crate::lease::host_state::HostState;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

pub(super) fn times() -> Times {
    Times {
        lease_ms: 30_000,
        end_ms: 1000,
        prepare_ms: 500,
        start_ms: 60_000,
        load_ms: 30_000,
        save_every_ms: 10 * MINUTE_MS,
        save_ms: 2000,
        write_ms: 20_000,
        step_ms: 10_000,
        replace_within_ms: 10 * MINUTE_MS,
    }
}

fn cause(name: &str, per_day: f64, loses: Loses, repair_ms: u64) -> CausePlan {
    CausePlan { name: name.to_owned(), per_day, loses, repair_ms, detect_ms: 10_000 }
}

fn plan(causes: Vec<CausePlan>) -> SimulationPlan {
    let budget = json!({ "crash": 100, "memory": 10, "hang": 100, "preemption": 1000, "host": 100 });
    let policy = json!({
        "restart": "gang", "budget": budget, "refill_steps": 100, "backoff_ms": 1000, "backoff_max_ms": 30_000,
        "same_failure_max": 2, "stop_grace_ms": 10_000, "failure_grace_ms": 500, "hang": null,
    });
    SimulationPlan {
        hosts: 64,
        gpus_per_host: 8,
        spare_hosts: 2,
        racks: 16,
        sizes: vec![64],
        for_ms: 10 * DAY_MS,
        seeds: (0..8).collect(),
        causes,
        times: times(),
        policy: serde_json::from_value(policy).unwrap(),
    }
}

fn all_causes() -> Vec<CausePlan> {
    vec![
        cause("bug", 3.0, Loses::Rank, 0),
        cause("device", 3.0, Loses::Rank, 4 * HOUR_MS),
        cause("host", 2.0, Loses::Host, 2 * HOUR_MS),
        cause("switch", 0.3, Loses::Rack, HOUR_MS),
        cause("planned", 0.5, Loses::Job, 0),
    ]
}

fn of(outcome: &Outcome, account: Account) -> u64 {
    outcome.accounts.iter().filter(|(known, _)| *known == account).map(|(_, sum)| sum).sum()
}

fn sum_of(outcomes: &[Outcome], account: Account) -> u64 {
    outcomes.iter().map(|outcome| of(outcome, account)).sum()
}

fn live(plan: &SimulationPlan) -> Vec<Outcome> {
    simulate(plan, 2).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Goal: O1, whatever is imagined. Method: random hosts, faults, leases and sizes; the accounts sum to the time to the millisecond.
    #[test]
    fn accounts_sum_to_the_time_exactly(
        hosts in 1..40_u32, spares in 0..5_u32, racks in 1..8_u32, lease in 2000..120_000_u64, every in 40_000..4_000_000_u64,
        rates in proptest::collection::vec(0.0..30.0_f64, 5), repair in 0..10 * HOUR_MS, shrinks in any::<bool>(), crashes in 0..20_u32,
    ) {
        let mut causes = all_causes();
        for (cause, rate) in causes.iter_mut().zip(rates) {
            cause.per_day = rate;
            if cause.repair_ms > 0 {
                cause.repair_ms = repair;
            }
        }
        let sizes = if shrinks { (1..=hosts).filter(|size| hosts % size == 0).collect() } else { vec![hosts] };
        let mut plan = SimulationPlan { hosts, spare_hosts: spares, racks, sizes, for_ms: 3 * DAY_MS + 17, seeds: vec![3], ..plan(causes) };
        plan.times.lease_ms = lease;
        plan.times.save_every_ms = every;
        plan.policy.budget.crash = crashes;
        for outcome in live(&plan) {
            let all: u64 = outcome.accounts.iter().map(|(_, sum)| sum).sum();
            prop_assert_eq!(all, plan.for_ms, "{:?}", outcome);
            prop_assert!(outcome.ended.is_some() || of(&outcome, Account::Over) == 0);
            let spans: u64 = outcome.spans.iter().map(|span| span.to_ms - span.from_ms).sum();
            let inside = [Account::Useful, Account::Smaller, Account::Saving].map(|account| of(&outcome, account));
            prop_assert_eq!(spans + inside.iter().sum::<u64>(), plan.for_ms);
        }
    }
}

#[test]
fn without_faults_all_time_but_the_start_and_the_saves_is_useful() {
    let plan = plan(Vec::new());
    for outcome in live(&plan) {
        let times = &plan.times;
        let begin_ms = times.prepare_ms + times.start_ms;
        let trained_ms = plan.for_ms - begin_ms;
        let saving_ms = trained_ms / (times.save_every_ms + times.save_ms) * times.save_ms;
        assert_eq!(of(&outcome, Account::Start), begin_ms);
        assert_eq!(of(&outcome, Account::Saving), saving_ms);
        assert_eq!(of(&outcome, Account::Useful), trained_ms - saving_ms);
        assert_eq!(outcome.restarts, 0);
    }
}

#[test]
fn the_same_seed_has_the_same_life_on_any_number_of_threads() {
    let plan = plan(all_causes());
    let once = simulate(&plan, 1).unwrap();
    assert_eq!(once, simulate(&plan, 5).unwrap());
    assert_ne!(once[0].accounts, once[1].accounts);
}

#[test]
fn a_lost_host_costs_its_lease_and_one_that_says_goodbye_does_not() {
    let silent = live(&plan(vec![cause("host", 2.0, Loses::Host, HOUR_MS)]));
    let polite = live(&plan(vec![cause("device", 2.0, Loses::Rank, HOUR_MS)]));
    let losses: u64 =
        silent.iter().map(|outcome| outcome.interruptions[0].all - outcome.interruptions[0].while_down).sum();
    assert!(sum_of(&silent, Account::Lease) >= losses * 29_000);
    assert_eq!(sum_of(&polite, Account::Lease), 0);
    assert!(silent.iter().chain(&polite).all(|outcome| outcome.replacements > 0));
}

#[test]
fn more_spares_never_raise_the_wait_for_a_host() {
    // The same faults meet every choice, so sums over seeds are comparable.
    let mut causes = all_causes();
    causes[2].per_day = 6.0;
    causes[2].repair_ms = 12 * HOUR_MS;
    let waits: Vec<u64> = [0, 1, 2, 4, 8, 16]
        .into_iter()
        .map(|spare_hosts| {
            sum_of(&live(&SimulationPlan { spare_hosts, ..plan(causes.clone()) }), Account::Waiting)
        })
        .collect();
    assert!(waits.windows(2).all(|two| two[0] >= two[1]), "{waits:?}");
    assert!(waits[0] > waits[5] && waits[5] < waits[0] / 100, "{waits:?}");
}

#[test]
fn the_wait_for_hosts_is_what_queueing_theory_says() {
    // Hosts that are repaired are a Poisson count, whatever the repair time is distributed like: its mean is rate times repair.
    let plan = SimulationPlan {
        spare_hosts: 1,
        for_ms: 100 * DAY_MS,
        ..plan(vec![cause("device", 3.0, Loses::Rank, 12 * HOUR_MS)])
    };
    let waited =
        sum_of(&live(&plan), Account::Waiting) as f64 / (plan.for_ms * plan.seeds.len() as u64) as f64;
    let away = 1.5_f64;
    let more_than_one = 1.0 - (-away).exp() * (1.0 + away);
    assert!((waited - more_than_one).abs() < 0.04, "{waited} {more_than_one}");
}

#[test]
fn a_longer_lease_costs_lease_and_a_longer_interval_costs_work_and_spares_saves() {
    let lives = |change: &dyn Fn(&mut Times)| {
        let mut plan = plan(all_causes());
        change(&mut plan.times);
        live(&plan)
    };
    let leases: Vec<u64> = [5000, 30_000, 120_000]
        .into_iter()
        .map(|lease_ms| sum_of(&lives(&|times| times.lease_ms = lease_ms), Account::Lease))
        .collect();
    assert!(leases.windows(2).all(|two| two[0] < two[1]), "{leases:?}");
    let by_interval: Vec<(u64, u64)> = [2, 10, 60]
        .into_iter()
        .map(|minutes| {
            let outcomes = lives(&|times| times.save_every_ms = minutes * MINUTE_MS);
            (sum_of(&outcomes, Account::Redone), sum_of(&outcomes, Account::Saving))
        })
        .collect();
    assert!(by_interval.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 > two[1].1), "{by_interval:?}");
}

#[test]
fn a_gang_that_may_shrink_trades_waiting_for_fewer_hosts() {
    let causes = || vec![cause("host", 1.0, Loses::Host, 12 * HOUR_MS)];
    let fixed = live(&SimulationPlan { spare_hosts: 0, ..plan(causes()) });
    let sizes = (32..=64).collect();
    let elastic = live(&SimulationPlan { spare_hosts: 0, sizes, ..plan(causes()) });
    assert!(sum_of(&elastic, Account::Waiting) < sum_of(&fixed, Account::Waiting) / 4);
    assert!(sum_of(&elastic, Account::Useful) > sum_of(&fixed, Account::Useful));
    assert!(sum_of(&elastic, Account::Smaller) > 0 && elastic.iter().any(|outcome| outcome.shrinks > 0));
    assert_eq!(sum_of(&fixed, Account::Smaller), 0);
}

#[test]
fn a_job_whose_budget_is_spent_gives_up_with_the_deciders_words() {
    let mut plan = plan(vec![cause("bug", 40.0, Loses::Rank, 0)]);
    plan.policy.budget.crash = 2;
    plan.policy.refill_steps = 0;
    for outcome in live(&plan) {
        let ended = outcome.ended.clone().unwrap();
        assert!(ended.reason.contains("all 2 restarts are spent"), "{}", ended.reason);
        assert_eq!(of(&outcome, Account::Over), plan.for_ms - ended.at_ms);
        assert_eq!(outcome.restarts, 2);
    }
}

#[test]
fn faults_come_as_often_as_was_said_and_causes_keep_their_shares() {
    let rates = [4.0, 2.0, 1.0, 0.5, 0.25];
    let mut causes = all_causes();
    for (cause, rate) in causes.iter_mut().zip(rates) {
        cause.per_day = rate;
    }
    let plan = SimulationPlan { seeds: (0..100).collect(), ..plan(causes) };
    let outcomes = live(&plan);
    let expected = rates.map(|rate| rate * 10.0 * 100.0);
    let counts =
        |cause: usize| outcomes.iter().map(|outcome| outcome.interruptions[cause].all).sum::<u64>() as f64;
    let squares: f64 =
        expected.iter().enumerate().map(|(cause, mean)| (counts(cause) - mean).powi(2) / mean).sum();
    // The 0.1 % point of chi square with five degrees of freedom; the seeds are fixed.
    assert!(squares < 20.5, "{squares}");
}

#[test]
fn many_seeds_have_as_many_faults_as_were_said_within_three_errors_of_their_mean() {
    let plan = plan(vec![cause("often", 7.75, Loses::Rank, 0)]);
    let seeds = 20_000;
    let counted: usize = (0..seeds).map(|seed| schedule(&plan, seed).len()).sum();
    let (mean, expected) = (counted as f64 / seeds as f64, 77.5_f64);
    assert!((mean - expected).abs() < 3.0 * (expected / seeds as f64).sqrt(), "{mean}");
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    let good = plan(all_causes());
    let negative = cause("negative", -1.0, Loses::Rank, 0);
    let refused = [
        ("hosts", SimulationPlan { hosts: 0, sizes: vec![0], ..good.clone() }),
        ("for", SimulationPlan { for_ms: 0, ..good.clone() }),
        ("sizes", SimulationPlan { sizes: vec![32], ..good.clone() }),
        ("seeds", SimulationPlan { seeds: Vec::new(), ..good.clone() }),
        ("racks", SimulationPlan { racks: 0, ..good.clone() }),
        ("causes", SimulationPlan { causes: vec![negative], ..good.clone() }),
        ("lease", SimulationPlan { times: Times { lease_ms: 10, ..times() }, ..good.clone() }),
        ("save_every", SimulationPlan { times: Times { save_ms: HOUR_MS, ..times() }, ..good.clone() }),
    ];
    for (field, plan) in refused {
        assert_eq!(simulate(&plan, 1).unwrap_err().field, field);
    }
}

/// Goal: what is played back is what was lived through. Method: a month with all causes, played to its end: outcomes are equal, time goes
/// forward, no host rank has two hosts, and every host that died is seen as silent, then as lost, and again as a spare.
#[test]
fn a_trace_shows_the_same_life_and_never_two_hosts_with_one_rank() {
    let mut plan = SimulationPlan { for_ms: 30 * DAY_MS, seeds: vec![5], ..plan(all_causes()) };
    plan.causes[3].per_day = 2.0;
    let trace = trace(&plan).unwrap();
    assert_eq!(trace.outcome, live(&plan)[0]);
    assert!(trace.cut_ms.is_none() && trace.racks.len() == 66 && trace.ranked == 64);
    assert!(trace.changes.windows(2).all(|two| two[0].at_ms <= two[1].at_ms));
    assert!(trace.stages.windows(2).all(|two| two[0].at_ms < two[1].at_ms));
    let mut ranks: Vec<Option<u32>> = (0..66).map(|host| Some(host).filter(|host| *host < 64)).collect();
    let mut at_ms = 0;
    let (mut silent, mut expired) = (0, 0);
    for (place, change) in trace.changes.iter().enumerate() {
        if change.at_ms > at_ms {
            let mut held: Vec<u32> = ranks.iter().copied().flatten().collect();
            held.sort_unstable();
            assert!(held.windows(2).all(|two| two[0] != two[1]), "two hosts before change {place}");
            at_ms = change.at_ms;
        }
        ranks[change.host as usize] = change.rank;
        silent += u32::from(change.silent_ms == Some(change.at_ms));
        expired += u32::from(change.state == HostState::Expired && change.rank.is_none());
    }
    assert!(silent >= expired && expired > 20, "{silent} {expired}");
    let whole: u64 = trace.outcome.interruptions.iter().map(|count| count.all).sum();
    assert!(trace.hits.len() as u64 >= whole && whole > 100);
}
