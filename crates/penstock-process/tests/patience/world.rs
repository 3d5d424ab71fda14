//! A gang in imagined time: ranks that make steps together, and the looks that the agent has at them, by the agent's own rules.

use penstock_process::coordinator::decider::Decider;
use penstock_process::coordinator::hang::{Clocks, Gaps, HoldKind, Patience, Pulse, Signs, StackPlace};
use penstock_process::coordinator::history::{Entry, JobHistory};
use penstock_process::coordinator::messages::{GangReport, Report, WorkerReport};
use penstock_process::coordinator::verdict::Action;
use penstock_process::job::Job;
use serde_json::{Value, json};

/// Between two looks of the agent.
const LOOK_MS: u64 = 1000;
/// What a collector takes to read stacks.
const COLLECT_MS: u64 = 800;
/// As the agent's.
const GAP_MS: u64 = 6000;
const IDLE_MS: u64 = 15_000;

/// What a rank does in one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deed {
    pub(crate) ms: u64,
    /// Bytes that it reads or writes in a second.
    pub(crate) bytes: u64,
    /// Its frames change.
    pub(crate) moves: bool,
    /// It waits in a collective of its own accord.
    pub(crate) collective: bool,
    /// Its stacks cannot be read.
    pub(crate) unreadable: bool,
    pub(crate) phase: &'static str,
    pub(crate) hold: Option<HoldKind>,
    /// The machine sleeps for so long in the middle of it.
    pub(crate) sleep_ms: u64,
    /// It ends without a pulse: the loop is over.
    pub(crate) last: bool,
}

/// A plain step.
pub(crate) fn step(ms: u64) -> Deed {
    Deed {
        ms,
        bytes: 0,
        moves: false,
        collective: false,
        unreadable: false,
        phase: "step",
        hold: None,
        sleep_ms: 0,
        last: false,
    }
}

pub(crate) const FOR_EVER: u64 = 100 * 3_600_000;

/// A program: what each rank does in each step; nothing when it is over.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    pub(crate) pulses: bool,
    /// Fields of the rule that differ from the default.
    pub(crate) rule: Value,
    pub(crate) deed: fn(u32, u64) -> Option<Deed>,
}

/// What came of a run: a failure or suspicion, if any, and when, since the standstill began.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hang: Option<(Option<u32>, String)>,
    pub(crate) after_ms: u64,
    pub(crate) steps: u64,
}

struct Rank {
    pulse: Pulse,
    signs: Signs,
    gaps: Gaps,
    bytes: u64,
}

struct World<'a> {
    program: &'a Program,
    ranks: Vec<Rank>,
    /// Since the machine started, and without its sleep.
    boot_ms: u64,
    awake_ms: u64,
    number: u64,
    begun_ms: u64,
    slept: bool,
    clocks: Clocks,
    patience: Patience,
    looks: Vec<u64>,
    look_ms: Option<u64>,
}

/// Runs a program until it is over, hangs, or an hour has passed in which the machine was awake.
pub(crate) fn run(program: &Program, awake_max_ms: u64) -> Outcome {
    let mut decider = decider(program);
    let ranks = (0..program.ranks).map(|_| Rank {
        pulse: Pulse { phase: "start".to_owned(), ..Pulse::default() },
        signs: Signs::default(),
        gaps: Gaps::default(),
        bytes: 0,
    });
    let mut world = World {
        program,
        ranks: ranks.collect(),
        boot_ms: 1,
        awake_ms: 1,
        number: 0,
        begun_ms: 1,
        slept: false,
        clocks: Clocks::default(),
        patience: Patience { fresh_ms: 1, excused: Vec::new() },
        looks: Vec::new(),
        look_ms: None,
    };
    decider.consider(&report(0, GangReport::default()));
    let mut due_ms = 0;
    while world.awake_ms < awake_max_ms {
        if !world.pass() {
            break;
        }
        if world.boot_ms < due_ms {
            continue;
        }
        world.look();
        let (entries, orders) = decider.consider(&report(world.boot_ms, world.report()));
        for entry in entries {
            let hang = match entry {
                Entry::Failed { failure, .. } => (failure.rank, failure.what),
                Entry::Suspected { suspicion, .. } => (suspicion.rank, suspicion.what),
                _ => continue,
            };
            let after_ms = world.boot_ms - world.begun_ms;
            return Outcome { hang: Some(hang), after_ms, steps: world.number };
        }
        if orders.gangs[0].action == Action::Look {
            world.look_ms.get_or_insert(world.boot_ms + COLLECT_MS);
        }
        due_ms = (world.boot_ms / LOOK_MS + 1) * LOOK_MS;
    }
    Outcome { hang: None, after_ms: 0, steps: world.number }
}

impl World<'_> {
    fn deed(&self, rank: u32) -> Option<Deed> {
        (self.program.deed)(rank, self.number)
    }

    /// A tenth of a second passes; false when the program is over.
    fn pass(&mut self) -> bool {
        let deeds: Option<Vec<Deed>> = (0..self.program.ranks).map(|rank| self.deed(rank)).collect();
        let Some(deeds) = deeds else { return false };
        let took_ms = self.boot_ms - self.begun_ms;
        let sleep_ms = deeds[0].sleep_ms;
        if sleep_ms > 0 && took_ms >= deeds[0].ms / 2 && !self.slept {
            (self.boot_ms, self.slept) = (self.boot_ms + sleep_ms, true);
        }
        let longest_ms = deeds.iter().map(|deed| deed.ms + deed.sleep_ms).max().unwrap_or(0);
        // Of quick steps many pass at once.
        let tick_ms = longest_ms.clamp(1, 100);
        self.boot_ms += tick_ms;
        self.awake_ms += tick_ms;
        for (rank, deed) in self.ranks.iter_mut().zip(&deeds) {
            if took_ms < deed.ms && deed.hold.is_none() {
                rank.bytes += deed.bytes * tick_ms / 1000;
            }
            if deed.phase != rank.pulse.phase && self.number > 0 {
                (rank.pulse.phase, rank.pulse.phase_at_ms) = (deed.phase.to_owned(), self.boot_ms);
            }
        }
        if took_ms + tick_ms >= longest_ms {
            let last = deeds.iter().any(|deed| deed.last);
            if !last {
                self.ranks.iter_mut().for_each(|rank| beat(&mut rank.pulse, self.number, self.boot_ms));
            }
            (self.number, self.begun_ms, self.slept) = (self.number + 1, self.boot_ms, false);
        }
        true
    }

    /// What the agent sees.
    fn look(&mut self) {
        let between = self.clocks.look(self.boot_ms, self.awake_ms, GAP_MS);
        if between.is_gap {
            self.patience.refresh(self.boot_ms);
        } else if between.slept_ms > 0 {
            self.patience.excuse(self.boot_ms - between.slept_ms, self.boot_ms);
        }
        let taken = self.look_ms.take_if(|at_ms| *at_ms <= self.boot_ms);
        let (now_ms, took_ms) = (self.boot_ms, self.boot_ms - self.begun_ms);
        let mut held = false;
        for rank in 0..self.program.ranks {
            let Some(deed) = self.deed(rank) else { continue };
            let own = &mut self.ranks[rank as usize];
            let waits = took_ms >= deed.ms;
            held |= own.signs.hold.is_some();
            own.signs.note_hold(deed.hold.filter(|_| !waits), now_ms);
            held |= own.signs.hold.is_some();
            if now_ms.saturating_sub(own.pulse.last_ms()) >= IDLE_MS {
                own.signs.note_bytes(own.bytes, now_ms);
            }
            if taken.is_some() {
                let digest = match (waits || deed.collective, deed.moves) {
                    (true, _) => 7,
                    (false, true) => 100 + now_ms,
                    (false, false) => u64::from(rank) + 8,
                };
                let place = StackPlace { digest, collective: waits || deed.collective };
                let seen = Some(place).filter(|_| !deed.unreadable || waits);
                own.signs.note_place(seen, own.pulse.last_ms(), now_ms);
            }
        }
        if held {
            self.patience.excuse(between.looked_ms, now_ms);
        }
        self.looks.extend(taken);
        let old = self.looks.len().saturating_sub(8);
        self.looks.drain(..old);
    }

    fn report(&mut self) -> GangReport {
        let pulses = self.program.pulses;
        let patience = self.patience.clone();
        let workers = self.ranks.iter_mut().zip(0..).map(|(own, rank)| WorkerReport {
            rank,
            pid: 100 + rank as i32,
            running: true,
            exit: None,
            exit_ms: None,
            asked: false,
            pulse: pulses.then(|| {
                let longest_ms = own.gaps.note(&own.pulse, &patience);
                Pulse { longest_ms, ..own.pulse.clone() }
            }),
            heard_ms: Some(own.pulse.step_at_ms.max(1)),
            signs: own.signs,
        });
        GangReport {
            incarnation: Some(0),
            workers: workers.collect(),
            looks: self.looks.clone(),
            patience: self.patience.clone(),
            ..GangReport::default()
        }
    }
}

/// As `pulsing.py` counts.
fn beat(pulse: &mut Pulse, step: u64, now_ms: u64) {
    let took_ms = now_ms - pulse.last_ms();
    if pulse.steps > 2 {
        pulse.longest_ms = pulse.longest_ms.max(took_ms);
        let usual = pulse.typical_ms;
        let bounded = took_ms.clamp(usual / 2, (2 * usual).max(1));
        pulse.typical_ms = if usual == 0 { took_ms } else { (usual * 7 + bounded) / 8 };
    }
    (pulse.step, pulse.step_at_ms, pulse.steps) = (step, now_ms, pulse.steps + 1);
    if pulse.phase != "step" {
        (pulse.phase, pulse.phase_at_ms) = ("step".to_owned(), now_ms);
    }
}

fn report(now_ms: u64, gang: GangReport) -> Report {
    Report {
        number: 0,
        machine: 0,
        now_ms,
        stop: None,
        gangs: vec![gang],
        unkillable: 0,
        leaves: None,
        stderr: Vec::new(),
    }
}

fn decider(program: &Program) -> Decider {
    let mut hang =
        json!({"factor": 10.0, "least_ms": 60_000, "silence_ms": 0, "given": false, "stopped_ms": 600_000});
    for (name, value) in program.rule.as_object().into_iter().flatten() {
        hang[name] = value.clone();
    }
    let policy = json!({
        "restart": "gang", "budget": {"crash": 3, "memory": 3, "hang": 3, "preemption": 3}, "refill_steps": 0,
        "backoff_ms": 0, "backoff_max_ms": 0, "same_failure_max": 0, "stop_grace_ms": 0, "failure_grace_ms": 0,
        "hang": hang,
    });
    let role = json!({"name": "rank", "kind": "gang", "command": ["true"], "ranks": program.ranks, "policy": policy});
    let about =
        json!({"id": "patience", "detached": true, "colour": false, "cgroup": false, "roles": [role]});
    let job: Job = serde_json::from_value(about).expect("a job");
    let history = JobHistory::new(&job);
    Decider::new(job, history)
}
