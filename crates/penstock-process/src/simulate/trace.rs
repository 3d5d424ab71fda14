//! What a person would have seen of one life: how each host went from state to state, what the gang did, and which faults there were.
//! A trace is played back at any speed, so the same pages show imagined hosts and real ones.

use serde::Serialize;

use crate::lease::host_state::HostState;
use crate::simulate::Outcome;
use crate::simulate::gang::Stage;
use crate::simulate::machines::Machines;

/// Changes that a trace holds; of a longer one the rest is left out.
pub const CHANGES_MAX: usize = 500_000;

/// A host is different from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When.
    pub at_ms: u64,
    /// Which, by its place among all hosts.
    pub host: u32,
    /// Where it is now, as far as anybody knows.
    pub state: HostState,
    /// Its host rank, if it has one.
    pub rank: Option<u32>,
    /// When it died, where it is dead and its end is not noticed or not over yet.
    pub silent_ms: Option<u64>,
}

/// The gang does something else from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StageChange {
    /// When.
    pub at_ms: u64,
    /// What its processes do.
    pub stage: &'static str,
    /// The newest life that began.
    pub life: Option<u32>,
}

/// A fault of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// When.
    pub at_ms: u64,
    /// Its cause, by its place in the plan.
    pub cause: usize,
    /// The host that it hit; nothing where the fault is of the job, or there is no host any more.
    pub host: Option<u32>,
}

/// One life of a job, as it is played back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// The rack of each host; those with a host rank at the beginning first.
    pub racks: Vec<u32>,
    /// How many of them have one.
    pub ranked: u32,
    /// In order of time.
    pub changes: Vec<Change>,
    /// In order of time.
    pub stages: Vec<StageChange>,
    /// In order of time.
    pub hits: Vec<Hit>,
    /// From when on changes are left out, because there are too many.
    pub cut_ms: Option<u64>,
    /// How it went.
    pub outcome: Outcome,
}

/// Writes a trace while a job is lived through.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    changes: Vec<Change>,
    stages: Vec<StageChange>,
    hits: Vec<Hit>,
    cut_ms: Option<u64>,
}

impl Recorder {
    /// Takes note of hosts that changed at a moment.
    pub(super) fn note_hosts(&mut self, at_ms: u64, machines: &mut Machines) {
        for host in machines.take_changed() {
            if self.changes.len() >= CHANGES_MAX {
                self.cut_ms = self.cut_ms.or(Some(at_ms));
                return;
            }
            let about = machines.get(host);
            let is_noticed = matches!(about.state, HostState::Expired | HostState::Gone | HostState::Left);
            let silent_ms = (!about.is_alive && !is_noticed).then_some(about.died_ms);
            let (host, state, rank) = (host as u32, about.state, about.rank);
            self.changes.push(Change { at_ms, host, state, rank, silent_ms });
        }
    }

    /// Takes note of what the gang does.
    pub(super) fn note_stage(&mut self, at_ms: u64, stage: Stage, life: Option<u32>) {
        let now = StageChange { at_ms, stage: stage.name(), life };
        match self.stages.last_mut() {
            Some(last) if (last.stage, last.life) == (now.stage, now.life) => {}
            Some(last) if last.at_ms == at_ms => *last = now,
            _ => self.stages.push(now),
        }
    }

    /// Takes note of a fault.
    pub(super) fn note_hit(&mut self, at_ms: u64, cause: usize, host: Option<usize>) {
        self.hits.push(Hit { at_ms, cause, host: host.map(|host| host as u32) });
    }

    /// Everything that was noted.
    pub(super) fn into_trace(self, racks: Vec<u32>, ranked: u32, outcome: Outcome) -> Trace {
        let Self { changes, stages, hits, cut_ms } = self;
        Trace { racks, ranked, changes, stages, hits, cut_ms, outcome }
    }
}
