//! Who makes no progress: decided purely, from what workers last reported and what was seen of them.
//!
//! A hang is many times the step time that this very run has shown, not a constant. Phases in which no steps are expected (compiling,
//! saving, evaluating) have limits of their own. Time in which a rank was held counts for nobody ([`patience`]); a rank that shows work
//! ([`signs`]) is given half an hour, unless somebody chose a limit; and before anybody is judged its stacks are looked at, because they
//! say whether it moves and who is to blame ([`blame`]).

mod blame;
mod patience;
mod signs;

use serde::{Deserialize, Serialize};

pub use self::patience::{Between, Clocks, Gaps, Past, Patience, TIMES_MAX, WORK_MS, limit_ms};
pub use self::signs::{Hold, HoldKind, IDLE_BYTES_MAX, Place, Signs};
use crate::policy::HangRule;
use crate::verdict::WITNESS_MS;

/// Between two looks at the stacks of a rank, at most: long enough for a loop of Python to be elsewhere.
const LOOKS_APART_MS: u64 = 10_000;
const LOOKS_APART_LEAST_MS: u64 = 500;
/// How soon somebody who waits for a look at stacks is asked again.
const AGAIN_MS: u64 = 250;

/// What a worker last reported about itself. Moments are on the clock of [`crate::system::now_ms`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// The newest step.
    pub step: u64,
    /// When it was reported.
    pub step_at_ms: u64,
    /// How many steps this life has reported.
    pub steps: u64,
    /// What a step usually takes.
    pub typical_ms: u64,
    /// What the longest took, the first ones apart.
    pub longest_ms: u64,
    /// What the worker says that it does.
    pub phase: String,
    /// Since when.
    pub phase_at_ms: u64,
    /// Whether it looks for notices.
    pub listens: bool,
}

impl Pulse {
    /// When it last said anything new.
    pub fn last_ms(&self) -> u64 {
        self.step_at_ms.max(self.phase_at_ms)
    }
}

/// A worker that may hang.
#[derive(Debug)]
pub struct Suspect<'a> {
    /// Its rank.
    pub rank: u32,
    /// What it reported; nothing when it never did.
    pub pulse: Option<&'a Pulse>,
    /// When it last wrote anything.
    pub heard_ms: Option<u64>,
    /// What was seen of it.
    pub signs: Signs,
}

/// All that a judgement needs.
#[derive(Debug)]
pub struct Case<'a> {
    /// When.
    pub now_ms: u64,
    /// Every worker of the gang that runs.
    pub suspects: &'a [Suspect<'a>],
    /// Which time counts.
    pub patience: &'a Patience,
    /// When stacks were taken in this life, in order.
    pub looks: &'a [u64],
    /// The limits.
    pub rule: &'a HangRule,
    /// What is known from before.
    pub past: Past,
}

/// A gang that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hang {
    /// Who is to blame, where one is.
    pub rank: Option<u32>,
    /// In words.
    pub what: String,
    /// Somebody chose the limit that is over.
    pub given: bool,
}

/// What is to be done about a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing; when to judge again.
    Fine(Option<u64>),
    /// Somebody may hang: take the stacks of all workers, then judge again.
    Look,
    /// It hangs.
    Hung(Hang),
    /// It would hang for the second time at this step, but it moves: twice the limit, in words.
    Slow(String),
}

/// How one suspect stands against its limit.
struct Standing<'a, 'b> {
    suspect: &'b Suspect<'a>,
    limit_ms: u64,
    /// Without a step, of the time that counts.
    quiet_ms: u64,
    /// The same without work of anybody of its gang.
    idle_ms: u64,
    /// When the quiet began, and when the idleness did.
    since_ms: u64,
    idle_since_ms: u64,
    /// Somebody chose its limit, so work is no excuse.
    given: bool,
}

impl Standing<'_, '_> {
    /// What is left until the limit, whatever the rank shows.
    fn left_ms(&self, past: &Past) -> u64 {
        let most_ms =
            if self.given { self.limit_ms } else { WORK_MS.saturating_mul(u64::from(past.times.max(1))) };
        let by_work = most_ms.max(self.limit_ms).saturating_sub(self.quiet_ms);
        let by_idleness = self.limit_ms.saturating_sub(self.idle_ms);
        if self.given { by_work } else { by_work.min(by_idleness) }
    }
}

/// Whether a gang hangs.
pub fn judge(case: &Case<'_>) -> Judgement {
    if let Some(judgement) = while_held(case) {
        return judgement;
    }
    let standings: Vec<Standing<'_, '_>> =
        case.suspects.iter().filter_map(|suspect| standing(case, suspect)).collect();
    // Whoever says that it saves or evaluates is who the others wait for.
    let busy = |standing: &Standing<'_, '_>| {
        let phase = standing.suspect.pulse.is_some_and(|pulse| patience::is_known(&pulse.phase));
        phase && standing.quiet_ms < standing.limit_ms
    };
    let waited_for = standings.iter().any(busy);
    let judged: Vec<&Standing<'_, '_>> = standings
        .iter()
        .filter(|standing| !busy(standing) && !(waited_for && standing.suspect.pulse.is_some()))
        // One warning for one standstill.
        .filter(|standing| case.past.warned_ms.is_none_or(|warned_ms| standing.since_ms > warned_ms))
        .collect();
    let due_ms = standings.iter().map(|standing| case.now_ms + standing.left_ms(&case.past).max(1)).min();
    let Some(worst) = judged.iter().min_by_key(|standing| standing.left_ms(&case.past)) else {
        return Judgement::Fine(due_ms);
    };
    let repeated = repeated_step(case);
    let apart_ms = (worst.limit_ms / 4).clamp(LOOKS_APART_LEAST_MS, LOOKS_APART_MS);
    // One look tells who is to blame; two tell whether somebody moves, which matters where that is an excuse.
    let twice = !worst.given || repeated;
    let left_ms = worst.left_ms(&case.past);
    let begun = if twice { left_ms <= apart_ms } else { left_ms == 0 };
    if !begun {
        let first_ms = case.now_ms + if twice { left_ms - apart_ms } else { left_ms };
        return Judgement::Fine(Some(due_ms.map_or(first_ms, |due_ms| due_ms.min(first_ms))));
    }
    let since_ms = if worst.given { worst.since_ms } else { worst.idle_since_ms }.max(case.patience.fresh_ms);
    let late = worst.quiet_ms >= worst.limit_ms.saturating_add(WITNESS_MS) && left_ms == 0;
    match next_look(case, since_ms, apart_ms, twice, left_ms) {
        Some(at_ms) if at_ms <= case.now_ms && !late => return Judgement::Look,
        Some(at_ms) if !late => return Judgement::Fine(Some(at_ms.min(case.now_ms + AGAIN_MS))),
        _ => {}
    }
    if left_ms > 0 {
        return Judgement::Fine(Some(case.now_ms + left_ms));
    }
    verdict(case, &judged, repeated)
}

/// When the next look at stacks is due; nothing when they were looked at often enough.
fn next_look(case: &Case<'_>, since_ms: u64, apart_ms: u64, twice: bool, left_ms: u64) -> Option<u64> {
    let mut looks = case.looks.iter().copied().filter(|at_ms| *at_ms >= since_ms);
    let first = looks.next();
    let last = looks.next_back().or(first);
    match (first, last) {
        (None, _) | (_, None) => Some(case.now_ms),
        (Some(_), Some(_)) if !twice => None,
        (Some(first), Some(last)) if last.saturating_sub(first) >= apart_ms => None,
        (Some(first), Some(_)) => {
            Some(first.saturating_add(apart_ms).max(case.now_ms + left_ms.min(apart_ms)))
        }
    }
}

/// Whether the life before this one hung at the very step at which this one stands.
fn repeated_step(case: &Case<'_>) -> bool {
    let step = case.suspects.iter().filter_map(|suspect| Some(suspect.pulse?.step)).max();
    case.past.hung_at.is_some() && case.past.hung_at == step
}

fn verdict(case: &Case<'_>, judged: &[&Standing<'_, '_>], repeated: bool) -> Judgement {
    let over: Vec<&&Standing<'_, '_>> =
        judged.iter().filter(|standing| standing.left_ms(&case.past) == 0).collect();
    let quiet: Vec<&Suspect<'_>> = over.iter().map(|standing| standing.suspect).collect();
    let (ranks, evidence) = blame::blamed(&quiet);
    let (name, verb) = blame::named(&ranks);
    let evidence = if ranks.is_empty() { "" } else { evidence };
    let longest = over
        .iter()
        .filter(|standing| ranks.is_empty() || ranks.contains(&standing.suspect.rank))
        .max_by_key(|standing| standing.quiet_ms)
        .or(over.first());
    let Some(standing) = longest else { return Judgement::Fine(None) };
    let what = format!("{name} {verb}{}{evidence}", words(standing));
    let moved = case.suspects.iter().any(|suspect| {
        suspect.signs.moved_ms.is_some_and(|moved_ms| {
            suspect.pulse.is_some_and(|pulse| moved_ms >= pulse.last_ms().max(case.patience.fresh_ms))
        })
    });
    if repeated && moved && case.past.times < TIMES_MAX {
        return Judgement::Slow(format!(
            "{what}; its frames change, and the life before stood at this step too"
        ));
    }
    let rank = if let [only] = ranks[..] { Some(only) } else { None };
    Judgement::Hung(Hang { rank, what, given: standing.given })
}

/// While somebody is held nobody is judged, but a rank that is stopped alone has a limit of its own.
fn while_held(case: &Case<'_>) -> Option<Judgement> {
    let held: Vec<(&Suspect<'_>, Hold)> =
        case.suspects.iter().filter_map(|suspect| Some((suspect, suspect.signs.hold?))).collect();
    if held.is_empty() {
        return None;
    }
    let stopped = |kind: HoldKind| kind != HoldKind::Output;
    let alone = held.iter().filter(|(_, hold)| stopped(hold.kind)).count() < case.suspects.len();
    let limit_ms = case.rule.stopped_ms;
    let due = held.iter().filter(|(_, hold)| hold.kind == HoldKind::Stopped && alone && limit_ms > 0);
    let mut over: Vec<(u32, u64)> = Vec::new();
    let mut next_ms = None::<u64>;
    for (suspect, hold) in due {
        // A gap of the agent, or sleep of the machine, is nobody's; but that others are held is no excuse here.
        let quiet_ms = case.now_ms.saturating_sub(hold.since_ms.max(case.patience.fresh_ms));
        if quiet_ms >= limit_ms && case.past.warned_ms.is_none_or(|warned_ms| hold.since_ms > warned_ms) {
            over.push((suspect.rank, quiet_ms));
        } else if quiet_ms < limit_ms {
            let at_ms = case.now_ms + (limit_ms - quiet_ms);
            next_ms = Some(next_ms.map_or(at_ms, |known_ms| known_ms.min(at_ms)));
        }
    }
    let Some(quiet_ms) = over.iter().map(|(_, quiet_ms)| *quiet_ms).max() else {
        return Some(Judgement::Fine(next_ms));
    };
    let ranks: Vec<u32> = over.iter().map(|(rank, _)| *rank).collect();
    let since_ms = case.now_ms.saturating_sub(quiet_ms);
    if !case.looks.iter().any(|at_ms| *at_ms >= since_ms) && quiet_ms < limit_ms.saturating_add(WITNESS_MS) {
        return Some(Judgement::Look);
    }
    let (name, _) = blame::named(&ranks);
    let verb = if ranks.len() == 1 { "is" } else { "are" };
    let what =
        format!("{name} {verb} stopped since {:.1} s, by a signal, and the gang waits", seconds(quiet_ms));
    let rank = if let [only] = ranks[..] { Some(only) } else { None };
    Some(Judgement::Hung(Hang { rank, what, given: false }))
}

/// How a suspect stands; nothing for one that is not judged.
fn standing<'a, 'b>(case: &Case<'_>, suspect: &'b Suspect<'a>) -> Option<Standing<'a, 'b>> {
    let (since_ms, limit_ms, given) = match suspect.pulse {
        Some(pulse) => (pulse.last_ms(), limit_ms(pulse, case.rule, &case.past), case.rule.given),
        None if case.rule.silence_ms > 0 => (suspect.heard_ms?, case.rule.silence_ms, true),
        None => return None,
    };
    let worked_ms = case.suspects.iter().filter_map(|suspect| suspect.signs.work_ms()).max().unwrap_or(0);
    let idle_since_ms = since_ms.max(worked_ms);
    let quiet_ms = case.patience.quiet_ms(since_ms, case.now_ms);
    let idle_ms = case.patience.quiet_ms(idle_since_ms, case.now_ms);
    Some(Standing { suspect, limit_ms, quiet_ms, idle_ms, since_ms, idle_since_ms, given })
}

/// What follows the verb.
fn words(standing: &Standing<'_, '_>) -> String {
    let quiet_s = seconds(standing.quiet_ms);
    match standing.suspect.pulse {
        None => format!(": silent for {quiet_s:.1} s"),
        Some(pulse) if patience::is_known(&pulse.phase) => {
            format!(" in phase {} since {quiet_s:.1} s, after step {}", pulse.phase, pulse.step)
        }
        Some(pulse) => format!(
            ": no step for {quiet_s:.1} s after step {}; a step usually takes {:.3} s",
            pulse.step,
            seconds(pulse.typical_ms)
        ),
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests;
