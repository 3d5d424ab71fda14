//! The coordinator's decider against thousands of imagined jobs, each from a seed: faults of workers, of agents and of coordinators in
//! imagined time, and after everything that happens a look at whether P1, P3 and P4 hold.
//!
//! A failing seed says how to repeat it: `PENSTOCK_SEED=N cargo test -p penstock-process --test simulation -- --nocapture`.
//! `PENSTOCK_SEEDS=N` tries more.

mod chance;
mod checks;
mod scene;
mod twin;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use scene::{Cast, Faults, Scene};
use world::World;

/// Each is a job with faults of everything.
const SEEDS: u64 = 2000;
/// Each is a job with and without faults of its coordinators.
const PAIRS: u64 = 500;

/// What has to happen in some of them.
const HAPPEN: [&str; 19] = [
    "start",
    "notify",
    "witness",
    "end",
    "kill",
    "queued",
    "slot of a spare",
    "unkillable",
    "orphan",
    "agent killed",
    "coordinator killed before it answers",
    "coordinator killed while it writes",
    "coordinator replaced",
    "stop",
    "peer",
    "hang",
    "memory",
    "preemption",
    "crash",
];

/// How often each thing happened in all worlds of a test.
type Totals = BTreeMap<&'static str, u32>;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Runs a test for every seed, or for the one that is asked for.
fn for_seeds(count: u64, name: &str, mut test: impl FnMut(u64, bool)) {
    let wanted = number("PENSTOCK_SEED");
    let seeds = wanted.map_or(0..number("PENSTOCK_SEEDS").unwrap_or(count), |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(problem) = catch_unwind(AssertUnwindSafe(|| test(seed, wanted.is_some()))) {
            eprintln!(
                "repeat with: PENSTOCK_SEED={seed} cargo test -p penstock-process --test simulation {name} -- --nocapture"
            );
            resume_unwind(problem);
        }
    }
}

/// P1, P3, P4 and all that `checks` looks at.
#[test]
fn whatever_happens_the_promises_are_kept() {
    let mut totals = Totals::new();
    for_seeds(SEEDS, "whatever_happens", |seed, trace| {
        let scene = Scene::new(seed, Cast::Anything);
        let (_, checks) = World::new(&scene, Faults::All, trace).run();
        for (name, count) in checks.happened {
            *totals.entry(name).or_default() += count;
        }
    });
    eprintln!("{totals:?}");
    // A simulator in which something never happens proves nothing about it.
    let rare = HAPPEN.iter().filter(|name| totals.get(*name).copied().unwrap_or(0) < 20);
    let rare: Vec<&&str> = rare.collect();
    assert!(rare.is_empty() || number("PENSTOCK_SEED").is_some(), "{rare:?} hardly ever happen: {totals:?}");
}

/// P4: the death of coordinators changes no worker's fate.
#[test]
fn with_and_without_deaths_of_coordinators_a_job_ends_the_same() {
    for_seeds(PAIRS, "with_and_without", |seed, trace| {
        for cast in [Cast::OneGang, Cast::Plenty] {
            let scene = Scene::new(seed, cast);
            let (calm, expected) = World::new(&scene, Faults::None, trace).run();
            let (over, found) = World::new(&scene, Faults::Coordinator, trace).run();
            assert_eq!(over, calm, "{cast:?}: the same end");
            assert_eq!(found.essence(), expected.essence(), "{cast:?}: the same lives and failures");
        }
    });
}
