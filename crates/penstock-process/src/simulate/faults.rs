//! When which fault hits whom: one Poisson process for each cause, fixed by the seed alone.
//!
//! A schedule does not depend on what the job does or how many spares it has, so two choices with the same seed meet the same faults.

use crate::simulate::chance::Chance;
use crate::simulate::plan::{Loses, SimulationPlan};

const DAY_MS: f64 = 86_400_000.0;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// When.
    pub at_ms: u64,
    /// Of which cause, by its place in the plan.
    pub cause: usize,
    /// Which of those that it may hit, as a share of them.
    pub whom: f64,
    /// It hits a spare.
    pub of_spare: bool,
}

/// All faults of a seed, in order.
pub fn schedule(plan: &SimulationPlan, seed: u64) -> Vec<Fault> {
    let mut found = Vec::new();
    for (cause, about) in plan.causes.iter().enumerate() {
        let spares = f64::from(plan.spare_hosts) / f64::from(plan.hosts);
        let takes_spares = matches!(about.loses, Loses::Host | Loses::Rack);
        let streams =
            [(false, about.per_day), (true, about.per_day * if takes_spares { spares } else { 0.0 })];
        for (of_spare, per_day) in streams {
            if per_day <= 0.0 {
                continue;
            }
            let mut chance = Chance::new(seed, &[cause as u64, u64::from(of_spare)]);
            let mut at_ms = chance.gap_ms(per_day / DAY_MS);
            while at_ms < plan.for_ms as f64 {
                found.push(Fault { at_ms: at_ms as u64, cause, whom: chance.share(), of_spare });
                at_ms += chance.gap_ms(per_day / DAY_MS);
            }
        }
    }
    found.sort_by_key(|fault| (fault.at_ms, fault.cause, fault.of_spare));
    found
}
