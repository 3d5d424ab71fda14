//! A job on hosts that do not exist: the real mind decides over imagined weeks, so that spares, leases and intervals can be tried.
//!
//! [`Decider::consider_view`](crate::coordinator::decider::Decider::consider_view) decides as it does for real hosts, with the policy of
//! the job, over views that are made of counts; hosts go through the real table of [`HostState`](crate::lease::host_state::HostState).
//! What is imagined is below that: faults ([`faults`]), hosts that are repaired ([`machines`]), and a gang that trains and saves
//! ([`gang`]). Nothing happens while a gang trains, so this time is skipped. Every millisecond belongs to one account ([`accounts`], O1).

pub mod accounts;
mod chance;
mod event_queue;
pub mod faults;
mod gang;
mod machines;
pub mod placement;
pub mod plan;
pub mod trace;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use self::accounts::{Account, Span};
pub use self::plan::{PlanProblem, SimulationPlan};
pub use self::trace::Trace;

/// What became of the faults of one cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CauseCount {
    /// How many hit hosts of the job.
    pub all: u64,
    /// Of these, how many found it down already.
    pub while_down: u64,
}

/// The job was over before the time was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EarlyEnd {
    /// When.
    pub at_ms: u64,
    /// What the decider said.
    pub reason: String,
}

/// How the job fared with one seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Which.
    pub seed: u64,
    /// Where the time went: these sum to it.
    pub accounts: Vec<(Account, u64)>,
    /// By cause, in the order of the plan.
    pub interruptions: Vec<CauseCount>,
    /// Spares that were lost.
    pub spares_lost: u64,
    /// Lives after the first.
    pub restarts: u32,
    /// Host ranks that another host took.
    pub replacements: u64,
    /// How often the gang continued with fewer hosts.
    pub shrinks: u64,
    /// The fewest spares that were left at any time.
    pub fewest_spares: u32,
    /// Set when the job gave up.
    pub ended: Option<EarlyEnd>,
    /// What was not training, in order; of the first seed only.
    pub spans: Vec<Span>,
}

/// Lives a job through once for each seed, on so many threads.
pub fn simulate(plan: &SimulationPlan, threads: usize) -> Result<Vec<Outcome>, PlanProblem> {
    plan.check()?;
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Outcome>> = Mutex::new(Vec::with_capacity(plan.seeds.len()));
    std::thread::scope(|scope| {
        let work = || {
            while let Some(seed) = plan.seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut outcome = world::World::new(plan, *seed).live();
                if Some(seed) != plan.seeds.first() {
                    outcome.spans = Vec::new();
                }
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            }
        };
        for number in 1..threads.clamp(1, plan.seeds.len()) {
            let named = std::thread::Builder::new().name(format!("penstock-simulate-{number}"));
            // Where there is no room for a thread, the others do its part.
            drop(named.spawn_scoped(scope, work));
        }
        work();
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = |seed: u64| plan.seeds.iter().position(|known| *known == seed);
    outcomes.sort_by_key(|outcome| place(outcome.seed));
    Ok(outcomes)
}

/// Lives a job through with the first seed, and remembers what a person would have seen of it.
pub fn trace(plan: &SimulationPlan) -> Result<Trace, PlanProblem> {
    plan.check()?;
    Ok(world::World::new(plan, plan.seeds[0]).record())
}

#[cfg(test)]
mod tests;
