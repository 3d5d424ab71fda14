//! What the agent sees of its workers beside what they say: what holds them, whether they work, and what it has missed itself.
//!
//! A look costs a few files of /proc for every worker that is quiet, and nothing for one that makes steps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::agent::Agent;
use crate::coordinator::hang::{Clocks, Gaps, HoldKind, Patience, Pulse, Signs, StackPlace};
use crate::job::state::Phase;
use crate::system::lineage::everyone;
use crate::system::standstill::{families, hold_of};
use crate::system::{awake_ms, now_ms};

/// Between two looks; and where so many looks found that nobody says how far it is.
const LOOK_MS: u64 = 1000;
const SLOW_LOOK_MS: u64 = 5000;
const UNHEARD_MAX: u32 = 10;
/// A look that comes so much later than planned means that the agent itself was held.
const GAP_MS: u64 = 5000;
/// Who has been quiet for less is not looked at.
const QUIET_MS: u64 = 2000;
/// From then on it matters whether it works, at the latest.
const IDLE_MS: u64 = 15_000;
/// Sleep of the machine that is no mere difference between the moments at which two clocks are read.
const SLEEP_LEAST_MS: u64 = 100;
/// Moments of looks at stacks that are kept.
const LOOKS_MAX: usize = 8;
/// Innermost frames that say whether a rank waits for its peers.
const FRAMES_SEEN: usize = 3;
/// Functions in which Python waits for what peers have to do first.
const WAITS: [&str; 4] = ["_engine_run_backward", "synchronize", "block_until_ready", "sync_global_devices"];

/// Files of debuggers of Python, and how long a look at one in them counts.
const DEBUGGERS: [&str; 4] = ["/pdb.py", "/bdb.py", "/IPython/core/debugger.py", "/pydevd.py"];
const DEBUGGED_MS: u64 = 60_000;

/// What was seen of a worker in this life.
#[derive(Default)]
struct Seen {
    signs: Signs,
    gaps: Gaps,
    /// When its main thread was seen in a debugger of Python, where somebody thinks.
    debugged_ms: Option<u64>,
}

/// What was seen of all workers.
#[derive(Default)]
pub(super) struct Lookout {
    clocks: Clocks,
    due_ms: Option<u64>,
    /// How far from the last look that is.
    planned_ms: u64,
    /// Looks in a row at which nobody said how far it is.
    unheard: u32,
    workers: BTreeMap<(usize, u32), Seen>,
    patience: BTreeMap<usize, Patience>,
    /// When stacks of a gang were taken in this life.
    looks: BTreeMap<usize, Vec<u64>>,
}

impl Lookout {
    /// A new life begins.
    pub(super) fn forget(&mut self, gang: usize) {
        self.workers.retain(|(of, _), _| *of != gang);
        self.patience.insert(gang, Patience { fresh_ms: now_ms(), ..Patience::default() });
        self.looks.remove(&gang);
    }

    /// Whether anybody of a gang is held.
    fn holds(&self, gang: usize) -> bool {
        self.workers.range((gang, 0)..=(gang, u32::MAX)).any(|(_, seen)| seen.signs.hold.is_some())
    }

    pub(super) fn signs(&self, gang: usize, rank: u32) -> Signs {
        self.workers.get(&(gang, rank)).map(|seen| seen.signs).unwrap_or_default()
    }

    pub(super) fn patience(&self, gang: usize) -> Patience {
        self.patience.get(&gang).cloned().unwrap_or_default()
    }

    pub(super) fn looks(&self, gang: usize) -> Vec<u64> {
        self.looks.get(&gang).cloned().unwrap_or_default()
    }
}

impl Agent {
    /// Looks at workers that are quiet, when it is time; when to look again.
    pub(super) fn keep_lookout(&mut self) -> Option<u64> {
        let watched = self.watched();
        if watched.is_empty() {
            (self.liveness.lookout.clocks, self.liveness.lookout.due_ms) = (Clocks::default(), None);
            return None;
        }
        let now_ms = now_ms();
        if let Some(due_ms) = self.liveness.lookout.due_ms.filter(|due_ms| now_ms < *due_ms) {
            return Some(due_ms);
        }
        let planned_ms = self.liveness.lookout.planned_ms;
        let between = self.liveness.lookout.clocks.look(now_ms, awake_ms(), planned_ms + GAP_MS);
        for gang in &watched {
            let patience = self.liveness.lookout.patience.entry(*gang).or_default();
            if between.is_gap {
                patience.refresh(now_ms);
            } else if between.slept_ms >= SLEEP_LEAST_MS {
                patience.excuse(now_ms.saturating_sub(between.slept_ms), now_ms);
            }
        }
        if between.is_gap {
            self.journal.add_fact("gap", serde_json::json!({"from_ms": between.looked_ms, "to_ms": now_ms}));
        }
        // Whoever was held at either end of a stretch is excused for all of it.
        let mut held: BTreeSet<usize> =
            watched.iter().copied().filter(|gang| self.liveness.lookout.holds(*gang)).collect();
        self.look_at_quiet(&watched, QUIET_MS, now_ms);
        held.extend(watched.iter().filter(|gang| self.liveness.lookout.holds(**gang)));
        for gang in held {
            self.liveness.lookout.patience.entry(gang).or_default().excuse(between.looked_ms, now_ms);
        }
        let heard = watched.iter().any(|gang| self.is_heard(*gang));
        self.liveness.lookout.unheard =
            if heard { 0 } else { self.liveness.lookout.unheard.saturating_add(1) };
        let slow = self.liveness.lookout.unheard > UNHEARD_MAX;
        self.liveness.lookout.planned_ms = if slow { SLOW_LOOK_MS } else { LOOK_MS };
        self.liveness.lookout.due_ms = Some(now_ms + self.liveness.lookout.planned_ms);
        self.liveness.lookout.due_ms
    }

    /// Gangs that run and may hang.
    fn watched(&self) -> BTreeSet<usize> {
        let running = self.workers.running.values().map(|(gang, _)| *gang);
        running
            .filter(|gang| {
                self.view.state.gangs[*gang].phase == Phase::Running
                    && self.job.spec.roles[self.job.plans[*gang].role].policy.hang.is_some()
            })
            .collect()
    }

    /// Whether anybody of a gang reports steps, or is judged by its output.
    fn is_heard(&self, gang: usize) -> bool {
        let rule = self.job.spec.roles[self.job.plans[gang].role].policy.hang.as_ref();
        let mut ranks = self.job.plans[gang].ranks.clone();
        rule.is_some_and(|rule| rule.silence_ms > 0) || ranks.any(|rank| self.pulse_of(gang, rank).is_some())
    }

    /// Notes of every quiet worker what holds it, and whether it reads or writes.
    fn look_at_quiet(&mut self, watched: &BTreeSet<usize>, least_ms: u64, now_ms: u64) {
        let by_output = self.output.pump.held();
        let mut idle: BTreeMap<i32, (usize, u32)> = BTreeMap::new();
        for (pid, (gang, rank)) in self.workers.running.clone() {
            if !watched.contains(&gang) {
                continue;
            }
            let (said, pulse) = (self.said_pid(gang, rank), self.pulse_of(gang, rank));
            let quiet_ms = pulse.as_ref().map_or(u64::MAX, |pulse| now_ms.saturating_sub(pulse.last_ms()));
            let place = self.job.spec.place(self.job.plans[gang].role, rank);
            let kind = if by_output.contains(&place) {
                Some(HoldKind::Output)
            } else if quiet_ms >= least_ms || self.liveness.lookout.signs(gang, rank).hold.is_some() {
                let below = said.filter(|said| *said != pid).into_iter();
                std::iter::once(pid).chain(below).find_map(|pid| hold_of(pid, self.liveness.pid()))
            } else {
                None
            };
            let debugged_ms =
                self.liveness.lookout.workers.get(&(gang, rank)).and_then(|seen| seen.debugged_ms);
            let thinks = debugged_ms.is_some_and(|at_ms| {
                now_ms < at_ms + DEBUGGED_MS && pulse.as_ref().is_none_or(|pulse| pulse.last_ms() <= at_ms)
            });
            let kind = kind.or(thinks.then_some(HoldKind::Traced));
            let rule = self.job.spec.roles[self.job.plans[gang].role].policy.hang.as_ref();
            let idle_ms = rule.map_or(IDLE_MS, |rule| (rule.least_ms / 4).min(IDLE_MS));
            if pulse.is_some() && quiet_ms >= idle_ms {
                idle.insert(pid, (gang, rank));
            }
            self.liveness.lookout.workers.entry((gang, rank)).or_default().signs.note_hold(kind, now_ms);
        }
        if !idle.is_empty() {
            let found = families(&everyone(), &idle.keys().copied().collect());
            for (pid, worker) in idle {
                let Some(family) = found.get(&pid) else { continue };
                let signs = &mut self.liveness.lookout.workers.entry(worker).or_default().signs;
                signs.note_bytes(family.bytes, now_ms);
                if signs.hold.is_none() {
                    signs.note_hold(family.held, now_ms);
                }
            }
        }
        self.show_holds();
    }

    /// Lets others see what holds whom.
    fn show_holds(&mut self) {
        for (gang, state) in self.view.state.gangs.iter_mut().enumerate() {
            for worker in &mut state.workers {
                let hold =
                    self.liveness.lookout.signs(gang, worker.rank).hold.filter(|_| worker.exit.is_none());
                worker.held = hold.map(|hold| hold.kind.words().to_owned());
            }
        }
    }

    /// The longest step of a worker, without what was excused.
    pub(super) fn discounted(&mut self, gang: usize, rank: u32, pulse: Pulse) -> Pulse {
        let patience = self.liveness.lookout.patience(gang);
        let gaps = &mut self.liveness.lookout.workers.entry((gang, rank)).or_default().gaps;
        let longest_ms = gaps.note(&pulse, &patience);
        Pulse { longest_ms, ..pulse }
    }

    /// Takes note of stacks: where every worker of the gangs stands. Stacks that could not be taken are a look as well.
    pub(super) fn note_look(&mut self, gangs: &BTreeSet<usize>, stacks: Option<&Value>) {
        let now_ms = now_ms();
        for gang in gangs {
            let looks = self.liveness.lookout.looks.entry(*gang).or_default();
            looks.push(now_ms);
            if looks.len() > LOOKS_MAX {
                looks.remove(0);
            }
        }
        for look in stacks.and_then(|stacks| stacks.get("looks")?.as_array()).into_iter().flatten() {
            let (role, rank) =
                (look.get("role").and_then(Value::as_str), look.get("rank").and_then(Value::as_u64));
            let (Some(role), Some(rank)) = (role, rank.and_then(|rank| u32::try_from(rank).ok())) else {
                continue;
            };
            let gang =
                self.job.plans.iter().position(|plan| {
                    self.job.spec.roles[plan.role].name == role && plan.ranks.contains(&rank)
                });
            let Some(gang) = gang.filter(|gang| gangs.contains(gang)) else { continue };
            let since_ms = self.pulse_of(gang, rank).map_or(0, |pulse| pulse.last_ms());
            let signs = &mut self.liveness.lookout.workers.entry((gang, rank)).or_default().signs;
            signs.note_place(place_of(look), since_ms, now_ms);
            if is_debugged(look) {
                self.liveness.lookout.workers.entry((gang, rank)).or_default().debugged_ms = Some(now_ms);
            }
        }
        // A verdict follows, and who was stopped since the last look is not to be judged.
        self.look_at_quiet(gangs, 0, now_ms);
    }
}

/// Whether the main thread of a worker is in a debugger of Python.
fn is_debugged(look: &Value) -> bool {
    let frames = look.pointer("/threads/0/frames").and_then(Value::as_array);
    let files = frames.into_iter().flatten().filter_map(|frame| frame.get("file").and_then(Value::as_str));
    files.into_iter().any(|file| DEBUGGERS.iter().any(|debugger| file.ends_with(debugger)))
}

/// Where the main thread of a worker stands, from its look.
fn place_of(look: &Value) -> Option<StackPlace> {
    let frames = look.get("threads")?.as_array()?.first()?.get("frames")?.as_array()?;
    let text =
        |frame: &Value, key: &str| frame.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let collective = frames.iter().take(FRAMES_SEEN).any(|frame| {
        let (file, function) = (text(frame, "file"), text(frame, "function"));
        file.contains("torch/distributed/") || WAITS.contains(&function.as_str())
    });
    let whole: Vec<String> = frames
        .iter()
        .map(|frame| {
            let line = frame.get("line").and_then(Value::as_u64).unwrap_or(0);
            format!("{}:{}:{line}", text(frame, "file"), text(frame, "function"))
        })
        .collect();
    let digest = u64::from(crc32fast::hash(whole.join("\n").as_bytes())) | (whole.len() as u64) << 32;
    (!whole.is_empty()).then_some(StackPlace { digest, collective })
}
