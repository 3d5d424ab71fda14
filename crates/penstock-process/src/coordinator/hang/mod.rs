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

pub use self::patience::{
    Between, Clocks, Gaps, Past, Patience, TIMES_MAX, WORK_MS, is_known as is_known_phase, limit_ms,
};
pub use self::signs::{Hold, HoldKind, IDLE_BYTES_MAX, Signs, StackPlace};
use crate::job::policy::HangRule;

/// Looks at the stacks of a rank before it is said not to move.
const LOOKS: usize = 4;
/// Between two of them, at most: long enough for a loop of Python to be elsewhere.
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
    /// The limit that is over.
    pub limit_ms: u64,
    /// Since when there is no step.
    pub since_ms: u64,
}

/// What is to be done about a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing; when to judge again.
    Fine(Option<u64>),
    /// Somebody may hang: take the stacks of all workers, then judge again. Stacks that cannot be taken are a look as well.
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
    /// What is left until the limit, and since when stacks that were looked at say something about it.
    fn left(&self, past: &Past) -> (u64, u64) {
        let most_ms =
            if self.given { self.limit_ms } else { WORK_MS.saturating_mul(u64::from(past.times.max(1))) };
        let whatever_it_shows = (most_ms.max(self.limit_ms).saturating_sub(self.quiet_ms), self.since_ms);
        let without_work = (self.limit_ms.saturating_sub(self.idle_ms), self.idle_since_ms);
        if self.given { whatever_it_shows } else { whatever_it_shows.min(without_work) }
    }

    fn left_ms(&self, past: &Past) -> u64 {
        self.left(past).0
    }

    /// How long the limit has been over.
    fn over_ms(&self, past: &Past) -> u64 {
        if self.given {
            return self.quiet_ms.saturating_sub(self.limit_ms);
        }
        let most_ms = WORK_MS.saturating_mul(u64::from(past.times.max(1))).max(self.limit_ms);
        self.quiet_ms.saturating_sub(most_ms).max(self.idle_ms.saturating_sub(self.limit_ms))
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
        .filter(|standing| !waited_for || standing.suspect.pulse.is_none())
        // One warning for one standstill.
        .filter(|standing| case.past.warned_ms.is_none_or(|warned_ms| standing.since_ms > warned_ms))
        .collect();
    let due_ms = standings.iter().map(|standing| case.now_ms + standing.left_ms(&case.past).max(1)).min();
    let Some(worst) = judged.iter().min_by_key(|standing| standing.left_ms(&case.past)) else {
        return Judgement::Fine(due_ms);
    };
    let repeated = repeated_step(case);
    // One look tells who is to blame; several tell whether somebody moves, which matters where that is an excuse.
    let wanted = if !worst.given || repeated { LOOKS } else { 1 };
    let (left_ms, since_ms) = worst.left(&case.past);
    if let Some(judgement) = looked(case, worst, wanted, since_ms) {
        return match (judgement, due_ms) {
            (Judgement::Fine(Some(look_ms)), Some(due_ms)) => Judgement::Fine(Some(look_ms.min(due_ms))),
            (judgement, _) => judgement,
        };
    }
    if left_ms > 0 {
        return Judgement::Fine(Some(case.now_ms + left_ms));
    }
    verdict(case, &judged, repeated)
}

/// What is to be done before a verdict; nothing when stacks were looked at often enough since they could say something.
fn looked(case: &Case<'_>, worst: &Standing<'_, '_>, wanted: usize, since_ms: u64) -> Option<Judgement> {
    let apart_ms = (worst.limit_ms / 8).clamp(LOOKS_APART_LEAST_MS, LOOKS_APART_MS);
    let window_ms = if wanted > 1 { apart_ms * wanted as u64 } else { 0 };
    let (left_ms, over_ms) = (worst.left(&case.past).0, worst.over_ms(&case.past));
    if left_ms > window_ms {
        return Some(Judgement::Fine(Some(case.now_ms + left_ms - window_ms)));
    }
    let begun_ms = case.now_ms.saturating_sub(over_ms + window_ms - left_ms);
    let since_ms = since_ms.max(case.patience.fresh_ms).max(begun_ms);
    let looks: Vec<u64> = case.looks.iter().copied().filter(|at_ms| *at_ms >= since_ms).collect();
    let next_ms = looks.last().map_or(case.now_ms, |last_ms| last_ms.saturating_add(apart_ms));
    match (looks.len() >= wanted, next_ms <= case.now_ms) {
        (true, _) => None,
        (false, true) => Some(Judgement::Look),
        (false, false) => Some(Judgement::Fine(Some(next_ms.min(case.now_ms + AGAIN_MS)))),
    }
}

/// Whether the life before this one hung at the very step at which this one stands.
fn repeated_step(case: &Case<'_>) -> bool {
    let step = case.suspects.iter().filter_map(|suspect| Some(suspect.pulse?.step)).max();
    case.past.hung_at.is_some() && case.past.hung_at == step
}

fn verdict(case: &Case<'_>, judged: &[&Standing<'_, '_>], repeated: bool) -> Judgement {
    // Ranks of a gang stand still one after the other, so who is almost over its limit stands as well.
    let over: Vec<&&Standing<'_, '_>> =
        judged.iter().filter(|standing| standing.left_ms(&case.past) <= standing.limit_ms / 2).collect();
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
    let (given, limit_ms, since_ms) = (standing.given, standing.limit_ms, standing.since_ms);
    Judgement::Hung(Hang { rank, what, given, limit_ms, since_ms })
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
    if !case.looks.iter().any(|at_ms| *at_ms >= since_ms) {
        return Some(Judgement::Look);
    }
    let (name, _) = blame::named(&ranks);
    let verb = if ranks.len() == 1 { "is" } else { "are" };
    let what =
        format!("{name} {verb} stopped since {:.1} s, by a signal, and the gang waits", seconds(quiet_ms));
    let rank = if let [only] = ranks[..] { Some(only) } else { None };
    Some(Judgement::Hung(Hang { rank, what, given: false, limit_ms, since_ms }))
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
