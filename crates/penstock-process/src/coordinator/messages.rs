//! What agent and coordinator say to each other: the agent reports everything that is, the coordinator answers with orders.
//!
//! A report is whole, not a change: whoever hears one knows as much as whoever heard all. So a coordinator that was killed needs
//! its journal and one report, and a lost message loses nothing. Every order names the life that it is about (P3); an agent does
//! not obey an order about another one, nor one that answers an older report.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::coordinator::first_failure::Culprit;
use crate::coordinator::hang::{Past, Patience, Pulse, Signs};
use crate::coordinator::history::Suspicion;
use crate::coordinator::verdict::{Action, Failure, Stop};
use crate::job::exit::Exit;
use crate::job::state::Phase;
use crate::logs::stderr_tail::RankStderr;

/// What is with one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its place in the role.
    pub rank: u32,
    /// Its process.
    pub pid: i32,
    /// Whether it runs.
    pub running: bool,
    /// How it ended; nothing for one that was lost with its agent.
    pub exit: Option<Exit>,
    /// When that was noticed.
    pub exit_ms: Option<u64>,
    /// Whether it ended after it was asked to.
    pub asked: bool,
    /// What it last reported about itself.
    pub pulse: Option<Pulse>,
    /// When it last wrote anything.
    pub heard_ms: Option<u64>,
    /// What was seen of it.
    #[serde(default)]
    pub signs: Signs,
}

/// A life that a host can begin at once: its slots are taken, its zygote is warm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedLife {
    /// Which life.
    pub incarnation: u32,
    /// Reserved for rank 0, on the host that has it.
    #[serde(default)]
    pub port: Option<u16>,
}

/// What is with one gang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangReport {
    /// The newest life that was begun, or waits for slots.
    pub incarnation: Option<u32>,
    /// Whether it waits for slots, and for which.
    pub queued: Option<String>,
    /// Its workers.
    pub workers: Vec<WorkerReport>,
    /// Living descendants of workers that are gone.
    pub orphans: u32,
    /// What its failure looks like, once all of it is gone and its logs were read to the end.
    pub likeness: Option<String>,
    /// Who failed first, as its logs show; known at the same time.
    pub culprit: Option<Culprit>,
    /// How long the life was until somebody ended; known at the same time.
    pub lived_ms: Option<u64>,
    /// Everything of the life is gone and was looked at.
    pub examined: bool,
    /// Stacks were taken.
    pub witnessed: bool,
    /// When they were taken, in order; the newest of them.
    #[serde(default)]
    pub looks: Vec<u64>,
    /// Which time counts for its workers.
    #[serde(default)]
    pub patience: Patience,
    /// The newest suspicion that people were told.
    #[serde(default)]
    pub warned: u32,
    /// When workers were told to leave.
    pub notified_since_ms: Option<u64>,
    /// When they were told that they may leave, for a life with more hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_since_ms: Option<u64>,
    /// When they were sent what the person sent.
    #[serde(default)]
    pub signalled_since_ms: Option<u64>,
    /// When they were sent SIGTERM.
    pub ending_since_ms: Option<u64>,
    /// When they were sent SIGKILL.
    pub killing_since_ms: Option<u64>,
    /// The life that it is prepared for, in a job of many hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<PreparedLife>,
    /// When its workers were killed because the lease of this host ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ended_ms: Option<u64>,
}

impl GangReport {
    /// Processes of the life that are there.
    pub fn alive(&self) -> u32 {
        let running = self.workers.iter().filter(|worker| worker.running).count();
        u32::try_from(running).unwrap_or(u32::MAX).saturating_add(self.orphans)
    }
}

/// Everything that an agent knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Counts reports of this agent; the answer names it.
    pub number: u64,
    /// Which of the job's machines.
    pub machine: u32,
    /// When.
    pub now_ms: u64,
    /// Somebody wants the job to end.
    pub stop: Option<Stop>,
    /// In the order of [`crate::job::Job::gangs`].
    pub gangs: Vec<GangReport>,
    /// Processes that were killed long ago and are still there: they sleep in the kernel.
    #[serde(default)]
    pub unkillable: u32,
    /// This host leaves its job, and why: nothing of the job runs here any more, and nothing will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<String>,
    /// What its workers wrote to standard error since the last report, without secrets; in a job of many hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<RankStderr>,
}

impl Report {
    /// Whether another says the same, progress apart: workers that make steps are no news, one that begins to is.
    pub fn is_like(&self, other: &Self) -> bool {
        let bare = |report: &Self| {
            let mut gangs = report.gangs.clone();
            gangs.iter_mut().for_each(|gang| gang.patience = Patience::default());
            for worker in gangs.iter_mut().flat_map(|gang| &mut gang.workers) {
                let pulse = worker.pulse.take();
                worker.pulse = pulse.map(|Pulse { listens, steps, .. }| {
                    let steps = steps.min(1);
                    Pulse { listens, steps, ..Pulse::default() }
                });
                worker.heard_ms = None;
                worker.signs = worker.signs.hold.map(Signs::held).unwrap_or_default();
            }
            gangs
        };
        let about_host = |report: &Self| (report.stop.clone(), report.unkillable, report.leaves.clone());
        about_host(self) == about_host(other) && bare(self) == bare(other)
    }
}

/// What to do with one gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub gang: usize,
    /// The life that the order is about; the one to begin, for a start.
    pub incarnation: Option<u32>,
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: String,
    /// Where it is in its life.
    pub phase: Phase,
    /// The first failure of every life that failed.
    pub failures: Vec<Failure>,
    /// Which slot each worker gets in the life to begin; the ranks in order.
    pub placement: Vec<u32>,
    /// The life that ended is worth an incident.
    pub incident: bool,
    /// What to tell people, for a warning.
    #[serde(default)]
    pub suspicion: Option<Suspicion>,
    /// Where rank 0 of the life to begin listens, in a job of many hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<SocketAddr>,
    /// What earlier lives say about hangs, in a job of many hosts, where each judges its own part; nothing else has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
}

impl Order {
    /// Whether it is to be obeyed by whoever has this life with so many workers: an order about another life is not (P3), nor one
    /// to begin while somebody of the last life runs or the job has to end.
    ///
    /// Of a job of many hosts, a host may have missed lives: it joined later, or was prepared and never told to begin.
    pub fn concerns(&self, current: Option<u32>, running: usize, stopping: bool) -> bool {
        match self.action {
            Action::Prepare { incarnation } => current < Some(incarnation) && running == 0 && !stopping,
            Action::Start { incarnation } if self.is_of_many_hosts() => {
                current < Some(incarnation) && running == 0 && !stopping
            }
            Action::Start { incarnation } => {
                incarnation == current.map_or(0, |life| life + 1) && running == 0 && !stopping
            }
            _ => self.incarnation == current,
        }
    }

    /// Whether it is of a job of many hosts.
    pub fn is_of_many_hosts(&self) -> bool {
        self.past.is_some()
    }

    /// Whether workers of the life that a host has are to be killed: the job is further, and nothing of an older life counts.
    pub fn outdates(&self, current: Option<u32>) -> bool {
        self.is_of_many_hosts() && current.is_some() && self.incarnation > current
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// Success, failure or stop.
    pub phase: Phase,
    /// What the launcher exits with.
    pub code: i32,
}

/// What a life means for one host of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The host's number among those that the gang has, from 0.
    pub host_rank: u32,
    /// How many hosts the gang has.
    pub hosts: u32,
    /// The rank of the host's first worker, for each role.
    pub first_ranks: Vec<u32>,
    /// How many ranks each role has on all hosts.
    pub worlds: Vec<u32>,
    /// Roles that run on one host alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_one_host: Vec<usize>,
    /// How many ranks the first role may have in another life, where hosts may be lost for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u32>,
    /// Where other hosts reach this one.
    pub address: String,
    /// The network interface that was asked for.
    #[serde(default)]
    pub interface: Option<String>,
}

/// The lease of this host ends later; all else is as it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRenewal {
    /// When, on the host's own clock.
    pub renewed_until_ms: u64,
}

/// What a coordinator says to its agent, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorWord {
    /// Said often, and nearly all that is said to an idle host.
    Renewal(LeaseRenewal),
    /// The answer to a report.
    Orders(Box<Orders>),
}

impl CoordinatorWord {
    /// Nothing of a line that makes no sense.
    pub fn read(line: &[u8]) -> Option<Self> {
        let renewal = serde_json::from_slice(line).map(Self::Renewal);
        renewal.or_else(|_| serde_json::from_slice(line).map(Self::Orders)).ok()
    }
}

/// The answer to a report. In a job of many hosts orders may also come unasked; then they name the newest report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Of the report.
    pub number: u64,
    /// Where the job is in its life.
    pub phase: Phase,
    /// The reason of what was decided last.
    pub reason: String,
    /// What to do with each gang.
    pub gangs: Vec<Order>,
    /// When to report again, even if nothing happened.
    pub look_at_ms: Option<u64>,
    /// Nothing is left to do.
    pub over: Option<Over>,
    /// Where this host stands among others; nothing for a job of one host.
    #[serde(default)]
    pub standing: Option<Standing>,
    /// How long this host may run ranks unheard, on its own clock. Without a value nothing new is known.
    #[serde(default)]
    pub lease_until_ms: Option<u64>,
}
