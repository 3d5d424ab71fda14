//! When a gang is given another life, and how long an end may take; written down with the job.

use serde::{Deserialize, Serialize};

/// Lives that no budget exceeds: a limit even for failures that cost nothing.
pub const LIVES_MAX: u32 = 10_000;

/// Who is started again when a worker fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The worker alone; its peers do not notice.
    One,
    /// All workers of its role.
    Gang,
    /// All workers of the job.
    All,
}

/// Why a life ended too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// It ended with an error, or somebody killed it.
    Crash,
    /// The kernel had no memory left.
    Memory,
    /// No step for too long.
    Hang,
    /// Whoever lent the machine wanted it back.
    Preemption,
    /// A host was lost, or did not begin.
    Host,
    /// A gang failed whose failure is everybody's.
    Peer,
    /// It was asked to leave, because the next life has more hosts.
    Resize,
}

/// How many failures of a cause may come in a row, without progress between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// For [`Cause::Crash`].
    pub crash: u32,
    /// For [`Cause::Memory`].
    pub memory: u32,
    /// For [`Cause::Hang`].
    pub hang: u32,
    /// For [`Cause::Preemption`].
    pub preemption: u32,
    /// For [`Cause::Host`].
    #[serde(default = "hosts_lost")]
    pub host: u32,
}

/// What jobs have that say nothing about it: hosts come and go.
fn hosts_lost() -> u32 {
    100
}

impl Budget {
    /// What is allowed for a cause.
    pub fn of(&self, cause: Cause) -> u32 {
        match cause {
            Cause::Crash => self.crash,
            Cause::Memory => self.memory,
            Cause::Hang => self.hang,
            Cause::Preemption => self.preemption,
            Cause::Host => self.host,
            // Whoever failed first pays; and nobody for a life that gets larger.
            Cause::Peer | Cause::Resize => LIVES_MAX,
        }
    }

    /// The largest of them.
    pub fn most(&self) -> u32 {
        self.crash.max(self.memory).max(self.hang).max(self.preemption)
    }
}

/// How long a worker may make no progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HangRule {
    /// So many times its typical step.
    pub factor: f64,
    /// But never less than this.
    pub least_ms: u64,
    /// So long without a word, for workers that report no steps; 0 for ever.
    pub silence_ms: u64,
    /// Somebody chose the limit: it is obeyed, whatever a worker shows and whether or not there are restarts.
    #[serde(default = "yes")]
    pub given: bool,
    /// So long one worker alone may be stopped; 0 for ever.
    #[serde(default = "stopped_ms")]
    pub stopped_ms: u64,
}

fn yes() -> bool {
    true
}

fn stopped_ms() -> u64 {
    10 * 60_000
}

/// What jobs have that say nothing about it.
fn save_grace_ms() -> u64 {
    5 * 60_000
}

/// The rules of a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Who is started again.
    pub restart: Scope,
    /// How often.
    pub budget: Budget,
    /// A life that came so many steps further than all before it makes budgets full again. 0: never.
    pub refill_steps: u64,
    /// The wait before the second restart in a row; doubled for each further one. The first comes at once.
    pub backoff_ms: u64,
    /// The longest such wait.
    pub backoff_max_ms: u64,
    /// How often in a row the same failure at the same step may happen before restarting is pointless. 0: as often as it likes.
    pub same_failure_max: u32,
    /// From the first notice to SIGKILL when somebody asks the job to stop.
    pub stop_grace_ms: u64,
    /// How long a worker that is saving then may go on with that, at most.
    #[serde(default = "save_grace_ms")]
    pub save_grace_ms: u64,
    /// From SIGTERM to SIGKILL for workers that lost a peer.
    pub failure_grace_ms: u64,
    /// What counts as a hang; nothing does without it.
    pub hang: Option<HangRule>,
}
