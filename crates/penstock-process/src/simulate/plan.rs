//! What is imagined: hosts, faults, times and the policy of the job; checked before anything is lived through.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::job::policy::Policy;
use crate::lease::grant;

/// Hosts of one simulation, at most.
pub const HOSTS_MAX: u32 = 100_000;
/// Faults that one life expects, at most: the decider is shown all failures so far, so time grows with their square.
pub const FAULTS_MAX: f64 = 5000.0;

/// What a fault takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loses {
    /// The process of a rank. With a repair time also the device, so its host leaves with a goodbye.
    Rank,
    /// A host, without a word.
    Host,
    /// All hosts of a rack, without a word.
    Rack,
    /// Nothing by force: all ranks are told, save and leave.
    Job,
}

/// One cause of interruptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CausePlan {
    /// What people call it.
    pub name: String,
    /// Events in a day over all hosts of the job, spares apart.
    pub per_day: f64,
    /// What is lost.
    pub loses: Loses,
    /// Until a lost host is back.
    pub repair_ms: u64,
    /// From the fault to the end of the process that it hit.
    pub detect_ms: u64,
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// The lease of hosts.
    pub lease_ms: u64,
    /// From the order to end to the last process of hosts that are heard.
    pub end_ms: u64,
    /// Until all hosts are prepared.
    pub prepare_ms: u64,
    /// From the beginning of a life until its ranks have found each other.
    pub start_ms: u64,
    /// Until they have loaded a checkpoint.
    pub load_ms: u64,
    /// Training between two saves.
    pub save_every_ms: u64,
    /// How long training stands still for a save.
    pub save_ms: u64,
    /// From there until the checkpoint exists.
    pub write_ms: u64,
    /// A step; budgets are filled again by steps.
    pub step_ms: u64,
    /// How long a lost host is waited for before the gang continues with fewer.
    pub replace_within_ms: u64,
}

/// Everything that a simulation needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulationPlan {
    /// Hosts with ranks.
    pub hosts: u32,
    /// Ranks of each.
    pub gpus_per_host: u32,
    /// Hosts without.
    pub spare_hosts: u32,
    /// Over how many racks all of them are spread.
    pub racks: u32,
    /// How many hosts the gang may have, ascending; the last is `hosts`.
    pub sizes: Vec<u32>,
    /// How long.
    pub for_ms: u64,
    /// One life for each.
    pub seeds: Vec<u64>,
    /// What interrupts.
    pub causes: Vec<CausePlan>,
    /// How long things take.
    pub times: Times,
    /// When the gang is given another life.
    pub policy: Policy,
}

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct PlanProblem {
    /// Of what.
    pub field: &'static str,
    /// In words.
    pub reason: String,
}

impl SimulationPlan {
    /// Whether it can be lived through.
    pub fn check(&self) -> Result<(), PlanProblem> {
        let no = |field, reason: String| Err(PlanProblem { field, reason });
        let day_ms = 86_400_000.0;
        let days = self.for_ms as f64 / day_ms;
        if !(1..=HOSTS_MAX).contains(&self.hosts) {
            return no("hosts", format!("must be 1 to {HOSTS_MAX}, got {}", self.hosts));
        }
        if self.spare_hosts > HOSTS_MAX {
            return no("spare_hosts", format!("must be at most {HOSTS_MAX}, got {}", self.spare_hosts));
        }
        if self.gpus_per_host == 0 || self.gpus_per_host > 1024 {
            return no("gpus_per_host", format!("must be 1 to 1024, got {}", self.gpus_per_host));
        }
        if self.racks == 0 {
            return no("racks", "must be 1 or more, got 0".to_owned());
        }
        let ascending = self.sizes.windows(2).all(|two| two[0] < two[1]);
        if !ascending || self.sizes.first() == Some(&0) || self.sizes.last() != Some(&self.hosts) {
            return no("sizes", format!("must ascend to {} hosts, got {:?}", self.hosts, self.sizes));
        }
        if self.for_ms == 0 || days > 3660.0 {
            return no("for", format!("must be longer than 0 and at most 3,660 days, got {days:.1} days"));
        }
        if self.seeds.is_empty() {
            return no("seeds", "must be 1 or more, got 0".to_owned());
        }
        let times = &self.times;
        if times.lease_ms < grant::LEAST_MS {
            return no("lease", format!("must be {} ms or more, got {}", grant::LEAST_MS, times.lease_ms));
        }
        if times.save_every_ms == 0 || times.step_ms == 0 {
            return no("save_every", "must be longer than 0".to_owned());
        }
        if times.save_ms + times.write_ms > times.save_every_ms {
            let takes = times.save_ms + times.write_ms;
            let reason =
                format!("a save takes {takes} ms, longer than the {} between two", times.save_every_ms);
            return no("save_every", reason);
        }
        for cause in &self.causes {
            if !cause.per_day.is_finite() || cause.per_day < 0.0 {
                return no(
                    "causes",
                    format!("{}: a rate must be 0 or more, got {}", cause.name, cause.per_day),
                );
            }
        }
        let expected = self.causes.iter().map(|cause| cause.per_day).sum::<f64>() * days;
        if expected > FAULTS_MAX {
            let reason = format!("{expected:.0} faults are expected, more than {FAULTS_MAX:.0}");
            return no("causes", reason);
        }
        Ok(())
    }
}
