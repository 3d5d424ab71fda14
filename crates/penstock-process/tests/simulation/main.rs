//! The coordinator's mind against thousands of imagined jobs, each from a seed: faults of workers, of agents and of coordinators in
//! imagined time, and after everything that happens a look at whether P1, P3 and P4 hold.
//!
//! A failing seed says how to repeat it: `PENSTOCK_SEED=N cargo test -p penstock-process --test simulation -- --nocapture`.

mod chance;
mod checks;
mod scene;
mod twin;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use scene::{Cast, Faults, Scene};
use world::World;

/// Each is a job with faults of everything.
const SEEDS: u64 = 3000;
/// Each is a job with and without faults of its coordinators.
const PAIRS: u64 = 1500;

/// Runs a test for every seed, or for the one that is asked for.
fn for_seeds(count: u64, name: &str, test: impl Fn(u64, bool)) {
    let wanted = std::env::var("PENSTOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = wanted.map_or(0..count, |seed: u64| seed..seed + 1);
    for seed in seeds {
        if let Err(problem) = catch_unwind(AssertUnwindSafe(|| test(seed, wanted.is_some()))) {
            eprintln!("repeat with: PENSTOCK_SEED={seed} cargo test -p penstock-process --test simulation {name} -- --nocapture");
            std::panic::resume_unwind(problem);
        }
    }
}

#[test]
fn whatever_happens_the_promises_are_kept() {
    let totals = std::cell::RefCell::new(std::collections::BTreeMap::<&str, u32>::new());
    for_seeds(SEEDS, "whatever_happens", |seed, trace| {
        let scene = Scene::new(seed, Cast::Anything);
        let (_, checks) = World::new(&scene, Faults::All, trace).run();
        let mut totals = totals.borrow_mut();
        for (name, count) in checks.actions {
            *totals.entry(name).or_default() += count;
        }
        *totals.entry("coordinator deaths").or_default() += checks.coordinator_deaths;
        *totals.entry("agent deaths").or_default() += checks.agent_deaths;
    });
    eprintln!("{totals:?}");
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
