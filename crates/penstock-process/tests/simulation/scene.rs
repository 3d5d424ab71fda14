//! What a seed stands for: a job of several roles, and what every worker of every life will do.
//!
//! What a worker does depends on the seed, its role, rank and life, never on when it is started: so the same seed can be run with and
//! without faults of those who supervise, and compared.

use penstock_process::coordinator::hang::Pulse;
use penstock_process::job::exit::Exit;
use penstock_process::job::policy::{Budget, HangRule, Policy, Scope};
use penstock_process::job::{Job, Kind, Role};

use serde_json::json;

use crate::chance::Chance;

/// What a worker does by itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// It ends.
    Exits(Exit),
    /// It makes no step any more and says nothing.
    Hangs,
    /// It runs until it is told.
    Never,
}

/// A descendant that outlives its worker.
#[derive(Debug, Clone)]
pub(crate) struct Heir {
    /// SIGTERM means nothing to it.
    pub(crate) deaf: bool,
    /// From SIGKILL to its death.
    pub(crate) kill_ms: u64,
}

/// What a worker will do, from its start on.
#[derive(Debug, Clone)]
pub(crate) struct Fate {
    /// By itself.
    pub(crate) end: End,
    /// When.
    pub(crate) end_after_ms: u64,
    /// What stands at the end of its log.
    pub(crate) likeness: Option<String>,
    /// From SIGTERM to its end; nothing for one that ignores it.
    pub(crate) term_ms: Option<u64>,
    /// From a notice to its end; nothing for one that does not look for notices.
    pub(crate) notice_ms: Option<u64>,
    /// From SIGKILL to its death: longer than nothing for one that sleeps in the kernel.
    pub(crate) kill_ms: u64,
    /// Left when it ends.
    pub(crate) heirs: Vec<Heir>,
    /// What a step takes; nothing for one that reports no steps.
    pub(crate) step_ms: Option<u64>,
    /// The step that it begins after.
    pub(crate) step_from: u64,
    /// After so many steps of this life it saves for so long.
    pub(crate) pause: Option<(u64, u64)>,
    /// How often it writes something, if it does.
    pub(crate) word_ms: Option<u64>,
}

/// Which faults there are beside those of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// None: to compare with.
    None,
    /// Coordinators die or stand still.
    Coordinator,
    /// Those, and agents, stops, queues and full disks.
    All,
}

/// How much may differ between roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cast {
    /// One gang, whatever its budget.
    OneGang,
    /// Several roles whose budgets suffice, so that no gang's end depends on when another's came.
    Plenty,
    /// Anything.
    Anything,
}

/// All that a seed stands for.
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) cast: Cast,
    pub(crate) job: Job,
    /// Of each role: lives before this one fail.
    pub(crate) troubled: Vec<u64>,
}

impl Scene {
    pub(crate) fn new(seed: u64, cast: Cast) -> Self {
        let mut chance = Chance::new(seed, &[1]);
        let count = if cast == Cast::OneGang { 1 } else { chance.between(1, 4) };
        let mut roles: Vec<Role> = Vec::new();
        for number in 0..count {
            let role = role(&mut chance, cast, number, &roles);
            roles.push(role);
        }
        // A job of services alone runs until somebody stops it, which is another test's matter.
        if let Some(last) = roles.last_mut().filter(|role| role.kind == Kind::Service) {
            last.kind = Kind::Gang;
        }
        let troubled = roles.iter().map(|_| chance.between(0, 4)).collect();
        let about = json!({"id": format!("seed-{seed}"), "detached": true, "colour": false, "cgroup": false, "roles": roles});
        let job = serde_json::from_value(about).expect("a job");
        Self { seed, cast, job, troubled }
    }

    /// What a worker of a life will do.
    pub(crate) fn fate(&self, role: usize, rank: u32, incarnation: u32) -> Fate {
        let about = &self.job.roles[role];
        let mut chance = Chance::new(self.seed, &[2, role as u64, rank.into(), incarnation.into()]);
        let service = about.kind == Kind::Service;
        let hang = about.policy.hang.as_ref();
        let step_ms = (self.cast == Cast::Anything && chance.percent(70)).then(|| chance.between(5, 80));
        let words = hang.is_some_and(|rule| rule.silence_ms > 0) && step_ms.is_none();
        let word_ms = words.then(|| chance.between(50, 300));
        let troubled = u64::from(incarnation) < self.troubled[role] && chance.percent(60);
        let may_hang = hang.is_some() && (step_ms.is_some() || words);
        let end = match (troubled, service) {
            (false, true) => End::Never,
            (false, false) => End::Exits(exit(Some(0), None, false)),
            (true, _) if may_hang && chance.percent(35) => End::Hangs,
            (true, true) if chance.percent(20) => End::Exits(exit(Some(0), None, false)),
            (true, _) => End::Exits(bad_exit(&mut chance)),
        };
        // Who hangs has made steps enough to be known, and saves nothing: other hangs take half an hour to notice.
        let hangs = end == End::Hangs;
        let least_ms = if hangs { 4 * step_ms.unwrap_or(0) } else { 1 };
        let deaf = chance.percent(15);
        let listens = self.cast == Cast::Anything && chance.percent(30);
        let slow_death: &[u64] =
            if self.cast == Cast::Anything { &[50, 900, 7000, 90_000] } else { &[50, 900] };
        let heirs = if chance.percent(15) { chance.between(1, 2) } else { 0 };
        Fate {
            end,
            end_after_ms: chance.between(least_ms, 4000),
            likeness: chance.percent(50).then(|| chance.pick(&["KeyError", "ValueError"]).to_owned()),
            term_ms: (!deaf).then(|| chance.between(0, 400)),
            notice_ms: listens.then(|| chance.between(0, 1500)),
            kill_ms: if chance.percent(6) { chance.pick(slow_death) } else { 0 },
            heirs: (0..heirs)
                .map(|_| Heir {
                    deaf: chance.percent(50),
                    kill_ms: if chance.percent(8) { chance.pick(slow_death) } else { 0 },
                })
                .collect(),
            step_ms,
            step_from: u64::from(incarnation) * chance.pick(&[0, 30, 120]),
            pause: (!hangs && chance.percent(20))
                .then(|| (chance.between(1, 20), chance.between(2000, 9000))),
            word_ms,
        }
    }
}

fn role(chance: &mut Chance, cast: Cast, number: u64, before: &[Role]) -> Role {
    let anything = cast == Cast::Anything;
    let kind = match cast {
        Cast::OneGang => Kind::Gang,
        _ if number == 0 => chance.pick(&[Kind::Gang, Kind::Gang, Kind::Service, Kind::Task]),
        _ => chance.pick(&[Kind::Gang, Kind::Service, Kind::Task]),
    };
    let restart = match cast {
        Cast::OneGang => chance.pick(&[Scope::Gang, Scope::All]),
        // Who restarts with everybody depends on who still runs then, and so on time.
        Cast::Plenty => chance.pick(&[Scope::One, Scope::Gang]),
        Cast::Anything => chance.pick(&[Scope::One, Scope::Gang, Scope::All]),
    };
    let after: Vec<String> =
        before.iter().filter(|_| chance.percent(35)).map(|role| role.name.clone()).collect();
    let most = if cast == Cast::Plenty { 99 } else { 4 };
    let mut budget = || if cast == Cast::Plenty { most } else { chance.between(0, most) };
    let budget = Budget {
        crash: budget() as u32,
        memory: budget() as u32,
        hang: budget() as u32,
        preemption: budget() as u32,
        host: 0,
    };
    let policy = Policy {
        restart,
        budget,
        refill_steps: if anything { chance.pick(&[0, 50, 100]) } else { 0 },
        backoff_ms: chance.pick(&[0, 100, 1000]),
        backoff_max_ms: chance.pick(&[500, 3000]),
        same_failure_max: if cast == Cast::Plenty { 0 } else { chance.between(0, 3) as u32 },
        stop_grace_ms: chance.pick(&[0, 300, 2000]),
        save_grace_ms: chance.pick(&[0, 4000]),
        failure_grace_ms: chance.pick(&[0, 200, 1000]),
        hang: (anything && chance.percent(60)).then(|| HangRule {
            factor: 4.0,
            least_ms: 400,
            silence_ms: chance.pick(&[0, 700]),
            given: true,
            stopped_ms: 0,
        }),
    };
    let cpus = u32::from(anything && chance.percent(30));
    let about = json!({
        "name": format!("role{number}"), "kind": kind, "command": ["true"], "ranks": chance.between(1, 4), "after": after,
        "slots": {"cpus": cpus}, "spares": chance.pick(&[0, 0, 1, 2]), "policy": policy,
    });
    serde_json::from_value(about).expect("a role")
}

fn exit(code: Option<i32>, signal: Option<i32>, memory_exhausted: bool) -> Exit {
    Exit { code, signal, core: false, memory_exhausted }
}

fn bad_exit(chance: &mut Chance) -> Exit {
    match chance.between(0, 5) {
        0 => exit(None, Some(libc::SIGKILL), true),
        1 => exit(Some(75), None, false),
        2 => exit(None, Some(libc::SIGTERM), false),
        3 => exit(None, Some(libc::SIGSEGV), false),
        _ => exit(Some(1), None, false),
    }
}

/// How a process that was killed ends.
pub(crate) fn killed() -> Exit {
    exit(None, Some(libc::SIGKILL), false)
}

/// How a process that heeds SIGTERM ends.
pub(crate) fn left(chance: &mut Chance) -> Exit {
    chance.pick(&[
        exit(Some(0), None, false),
        exit(None, Some(libc::SIGTERM), false),
        exit(Some(3), None, false),
    ])
}

impl Fate {
    /// What the worker has reported so long after its start.
    pub(crate) fn pulse(&self, started_ms: u64, age_ms: u64) -> Option<Pulse> {
        let step_ms = self.step_ms?;
        let until_ms = if self.end == End::Hangs { age_ms.min(self.end_after_ms) } else { age_ms };
        let mut pulse = Pulse {
            step: self.step_from,
            step_at_ms: started_ms,
            typical_ms: step_ms,
            phase: "start".to_owned(),
            phase_at_ms: started_ms,
            listens: self.notice_ms.is_some(),
            ..Pulse::default()
        };
        let mut at_ms = 0;
        loop {
            self.skip_to_pause(&mut pulse, started_ms, &mut at_ms, until_ms);
            // Every seventh takes twice as long, which is no hang.
            let takes_ms = step_ms * if pulse.steps % 7 == 6 { 2 } else { 1 };
            if at_ms + takes_ms > until_ms {
                return Some(pulse);
            }
            at_ms += takes_ms;
            pulse.steps += 1;
            (pulse.step, pulse.step_at_ms) = (self.step_from + pulse.steps, started_ms + at_ms);
            pulse.longest_ms = pulse.longest_ms.max(takes_ms);
            if pulse.phase == "start" {
                (pulse.phase, pulse.phase_at_ms) = ("step".to_owned(), started_ms + at_ms);
            }
            let Some((_, pause_ms)) = self.pause.filter(|(after, _)| *after == pulse.steps) else { continue };
            (pulse.phase, pulse.phase_at_ms) = ("checkpoint".to_owned(), started_ms + at_ms);
            at_ms += pause_ms;
            if at_ms > until_ms {
                return Some(pulse);
            }
            (pulse.phase, pulse.phase_at_ms) = ("step".to_owned(), started_ms + at_ms);
        }
    }

    /// Makes many steps at once, where all of them are alike.
    fn skip_to_pause(&self, pulse: &mut Pulse, started_ms: u64, at_ms: &mut u64, until_ms: u64) {
        let round_ms = 8 * self.step_ms.unwrap_or(1);
        let near = self.pause.is_some_and(|(after, _)| pulse.steps <= after + 7);
        if pulse.steps % 7 == 0 && pulse.steps > 7 && !near {
            let rounds = (until_ms - *at_ms) / round_ms;
            *at_ms += rounds * round_ms;
            pulse.steps += 7 * rounds;
            if rounds > 0 {
                (pulse.step, pulse.step_at_ms) = (self.step_from + pulse.steps, started_ms + *at_ms);
            }
        }
    }

    /// When it last wrote something.
    pub(crate) fn heard_ms(&self, started_ms: u64, age_ms: u64) -> Option<u64> {
        let until_ms = if self.end == End::Hangs { age_ms.min(self.end_after_ms) } else { age_ms };
        self.word_ms.map(|word_ms| started_ms + until_ms / word_ms * word_ms)
    }

    /// Whether it makes no progress any more, and since when its patience is spent.
    pub(crate) fn hangs_at(&self, age_ms: u64) -> bool {
        self.end == End::Hangs && age_ms >= self.end_after_ms
    }
}
