//! How long a rank may be quiet, and which time counts.
//!
//! Time in which a rank could not go on counts for nobody: while output is held back, while somebody of the gang is stopped, while the
//! machine sleeps. Such stretches are kept as *excuses* and taken off. After a gap of the agent itself nobody knows what happened, so
//! everybody gets fresh patience.

use serde::{Deserialize, Serialize};

use crate::coordinator::hang::Pulse;
use crate::job::policy::HangRule;

/// Steps after which the typical duration is known well enough.
const STEPS_MIN: u64 = 3;
/// A step may take so many times the longest of any life.
const LONGEST_FACTOR: u64 = 3;
/// Phases in which no steps are expected, with what they may take. Others are taken for steps.
const PHASES: [(&str, u64); 5] = [
    ("start", 30 * 60_000),
    ("compile", 60 * 60_000),
    ("checkpoint", 30 * 60_000),
    ("eval", 4 * 3_600_000),
    ("restore", 60 * 60_000),
];
/// What a rank has that makes no steps but shows work.
pub const WORK_MS: u64 = 30 * 60_000;
/// How often the limit is doubled at most: by then it is a day or more.
pub const TIMES_MAX: u32 = 64;
/// Excuses that are kept; older ones grow together.
const EXCUSES_MAX: usize = 32;

/// Whether a phase has a limit of its own.
pub fn is_known(phase: &str) -> bool {
    PHASES.iter().any(|(name, _)| *name == phase)
}

/// Which time counts for the ranks of a gang. Moments are on the clock of [`crate::system::now_ms`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// Nothing before this moment counts.
    pub fresh_ms: u64,
    /// From and to, in order, apart from each other.
    pub excused: Vec<(u64, u64)>,
}

impl Patience {
    /// Everybody begins anew.
    pub fn refresh(&mut self, now_ms: u64) {
        self.fresh_ms = now_ms;
        self.excused.retain(|(_, to_ms)| *to_ms > now_ms);
    }

    /// This stretch counts for nobody. Stretches come in the order of their ends.
    pub fn excuse(&mut self, from_ms: u64, to_ms: u64) {
        let mut from_ms = from_ms.max(self.fresh_ms);
        if from_ms >= to_ms {
            return;
        }
        while let Some((earlier_ms, _)) = self.excused.last().filter(|(_, until_ms)| *until_ms >= from_ms) {
            from_ms = from_ms.min(*earlier_ms);
            self.excused.pop();
        }
        self.excused.push((from_ms, to_ms));
        if self.excused.len() > EXCUSES_MAX {
            // Too much is excused then, never too little.
            let (from_ms, _) = self.excused.remove(0);
            self.excused[0].0 = from_ms;
        }
    }

    /// How much of a stretch is excused.
    pub fn excused_ms(&self, from_ms: u64, to_ms: u64) -> u64 {
        let within = |(begin, end): &(u64, u64)| (*end).min(to_ms).saturating_sub((*begin).max(from_ms));
        self.excused.iter().map(within).sum()
    }

    /// How long somebody was quiet, of the time that counts.
    pub fn quiet_ms(&self, since_ms: u64, now_ms: u64) -> u64 {
        let since_ms = since_ms.max(self.fresh_ms);
        now_ms.saturating_sub(since_ms).saturating_sub(self.excused_ms(since_ms, now_ms))
    }
}

/// What earlier lives and earlier verdicts say about a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The longest time between two steps in any earlier life.
    pub longest_ms: u64,
    /// The limits are so many times what they were at first.
    pub times: u32,
    /// The step at which the life before this one hung.
    pub hung_at: Option<u64>,
    /// When somebody was last told that this life may hang.
    pub warned_ms: Option<u64>,
}

impl Default for Past {
    fn default() -> Self {
        Self { longest_ms: 0, times: 1, hung_at: None, warned_ms: None }
    }
}

/// How long a rank may stay as it is.
pub fn limit_ms(pulse: &Pulse, rule: &HangRule, past: &Past) -> u64 {
    let times = u64::from(past.times.max(1));
    if let Some((_, limit_ms)) = PHASES.iter().find(|(name, _)| *name == pulse.phase) {
        return limit_ms.saturating_mul(times);
    }
    if pulse.steps < STEPS_MIN {
        // Nothing is known yet; who stops after its first step must not be waited for for ever.
        return PHASES[0].1.saturating_mul(times);
    }
    let learned = (pulse.typical_ms as f64 * rule.factor) as u64;
    let longest = pulse.longest_ms.max(past.longest_ms).saturating_mul(LONGEST_FACTOR);
    learned.max(rule.least_ms).max(longest).saturating_mul(times)
}

/// The longest step of a life, without what was excused: a rank does not know that it was stopped, or that the machine slept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gaps {
    /// What the rank says.
    said_ms: u64,
    /// What counts.
    longest_ms: u64,
    /// When it had made the step before.
    step_at_ms: u64,
}

impl Gaps {
    /// With what a rank says now; what its longest step counts as.
    pub fn note(&mut self, pulse: &Pulse, patience: &Patience) -> u64 {
        if pulse.longest_ms != self.said_ms {
            // The step that was longest ended after the last look and began before it, or lies between two looks.
            let excused_ms = patience.excused_ms(self.step_at_ms, pulse.step_at_ms);
            self.longest_ms = self.longest_ms.max(pulse.longest_ms.saturating_sub(excused_ms));
            self.said_ms = pulse.longest_ms;
        }
        self.step_at_ms = pulse.step_at_ms;
        self.longest_ms
    }
}

/// Notices what the agent missed: its own gaps, and the machine's sleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The last look: since the machine started, and the same without its sleep.
    looked: Option<(u64, u64)>,
}

/// What lies between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    /// When the look before was.
    pub looked_ms: u64,
    /// How long the machine slept.
    pub slept_ms: u64,
    /// The looks were further apart than planned, while the machine did not sleep.
    pub is_gap: bool,
}

impl Clocks {
    /// A look now, by both clocks; `late_ms` is how much later than planned it may be.
    pub fn look(&mut self, boot_ms: u64, awake_ms: u64, late_ms: u64) -> Between {
        let (boot_before, awake_before) =
            self.looked.replace((boot_ms, awake_ms)).unwrap_or((boot_ms, awake_ms));
        let awake_for = awake_ms.saturating_sub(awake_before);
        let slept_ms = boot_ms.saturating_sub(boot_before).saturating_sub(awake_for);
        Between { looked_ms: boot_before, slept_ms, is_gap: awake_for > late_ms }
    }
}
