//! Who makes no progress: decided purely, from what workers last reported.
//!
//! A hang is many times the step time that this very run has shown, not a constant: seconds for a run of quick steps. Phases in which no
//! steps are expected (compiling, saving, evaluating) have limits of their own.

use serde::{Deserialize, Serialize};

use crate::policy::HangRule;

/// Steps after which the typical duration is known well enough.
const STEPS_MIN: u64 = 3;
/// A step may take so many times the longest of this life.
const LONGEST_FACTOR: u64 = 3;
/// Phases in which no steps are expected, with what they may take. Others are taken for steps.
const PHASES: [(&str, u64); 5] = [
    ("start", 30 * 60_000),
    ("compile", 60 * 60_000),
    ("checkpoint", 30 * 60_000),
    ("eval", 4 * 3_600_000),
    ("restore", 60 * 60_000),
];

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

/// A worker that may hang.
pub struct Suspect<'a> {
    /// Its rank.
    pub rank: u32,
    /// What it reported; nothing when it never did.
    pub pulse: Option<&'a Pulse>,
    /// When it last wrote anything.
    pub heard_ms: Option<u64>,
}

/// The worker that holds up the others, and for how long, in words. The one that is furthest behind is named.
pub fn hung(now_ms: u64, suspects: &[Suspect<'_>], rule: &HangRule) -> Option<(u32, String)> {
    let mut found: Vec<(u64, u64, u32, String)> = Vec::new();
    for suspect in suspects {
        let judged = match suspect.pulse {
            Some(pulse) => by_steps(now_ms, pulse, rule).map(|why| (pulse.step, pulse.step_at_ms, why)),
            None => {
                by_silence(now_ms, suspect.heard_ms, rule).map(|why| (0, suspect.heard_ms.unwrap_or(0), why))
            }
        };
        found.extend(judged.map(|(step, at_ms, why)| (step, at_ms, suspect.rank, why)));
    }
    found.sort();
    found.into_iter().next().map(|(_, _, rank, why)| (rank, format!("rank {rank} {why}")))
}

/// How long a worker may stay as it is.
pub fn patience_ms(pulse: &Pulse, rule: &HangRule) -> Option<u64> {
    if let Some((_, limit_ms)) = PHASES.iter().find(|(name, _)| *name == pulse.phase) {
        return Some(*limit_ms);
    }
    if pulse.steps < STEPS_MIN {
        // Nothing is known yet; who stops after its first step must not be waited for for ever.
        return Some(PHASES[0].1);
    }
    let learned = (pulse.typical_ms as f64 * rule.factor) as u64;
    Some(learned.max(rule.least_ms).max(pulse.longest_ms.saturating_mul(LONGEST_FACTOR)))
}

/// When a look at a worker is due, because it may hang then.
pub fn due_ms(suspect: &Suspect<'_>, rule: &HangRule) -> Option<u64> {
    match suspect.pulse {
        Some(pulse) => Some(last_ms(pulse).saturating_add(patience_ms(pulse, rule)?)),
        None => (rule.silence_ms > 0).then(|| suspect.heard_ms.map(|at| at + rule.silence_ms)).flatten(),
    }
}

fn last_ms(pulse: &Pulse) -> u64 {
    pulse.step_at_ms.max(pulse.phase_at_ms)
}

fn by_steps(now_ms: u64, pulse: &Pulse, rule: &HangRule) -> Option<String> {
    let quiet_ms = now_ms.saturating_sub(last_ms(pulse));
    let allowed_ms = patience_ms(pulse, rule)?;
    (quiet_ms >= allowed_ms).then(|| {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        match PHASES.iter().any(|(name, _)| *name == pulse.phase) {
            true => format!(
                "hangs in phase {} since {:.1} s, after step {}",
                pulse.phase,
                seconds(quiet_ms),
                pulse.step
            ),
            false => format!(
                "hangs: no step for {:.1} s after step {}; a step usually takes {:.3} s",
                seconds(quiet_ms),
                pulse.step,
                seconds(pulse.typical_ms)
            ),
        }
    })
}

fn by_silence(now_ms: u64, heard_ms: Option<u64>, rule: &HangRule) -> Option<String> {
    let quiet_ms = now_ms.saturating_sub(heard_ms?);
    (rule.silence_ms > 0 && quiet_ms >= rule.silence_ms)
        .then(|| format!("hangs: silent for {:.1} s", quiet_ms as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: HangRule = HangRule { factor: 10.0, least_ms: 2000, silence_ms: 0 };

    fn pulse(step: u64, at_ms: u64, typical_ms: u64) -> Pulse {
        Pulse {
            step,
            step_at_ms: at_ms,
            steps: 9,
            typical_ms,
            longest_ms: typical_ms,
            phase: "step".into(),
            ..Pulse::default()
        }
    }

    fn suspect(rank: u32, pulse: &Pulse) -> Suspect<'_> {
        Suspect { rank, pulse: Some(pulse), heard_ms: None }
    }

    #[test]
    fn a_hang_is_many_times_the_learned_step() {
        let one = pulse(40, 1000, 500);
        assert_eq!(hung(5999, &[suspect(0, &one)], &RULE), None);
        let (rank, why) = hung(6000, &[suspect(0, &one)], &RULE).unwrap();
        assert_eq!(
            (rank, why.as_str()),
            (0, "rank 0 hangs: no step for 5.0 s after step 40; a step usually takes 0.500 s")
        );
        assert_eq!(due_ms(&suspect(0, &one), &RULE), Some(6000));
    }

    #[test]
    fn who_is_furthest_behind_is_named() {
        let (ahead, behind) = (pulse(41, 900, 10), pulse(40, 1000, 10));
        let found = hung(99_999, &[suspect(0, &ahead), suspect(3, &behind)], &RULE);
        assert_eq!(found.unwrap().0, 3);
    }

    #[test]
    fn saving_and_the_first_steps_are_no_hangs_but_saving_for_ever_is() {
        let saving = Pulse { phase: "checkpoint".into(), phase_at_ms: 1000, ..pulse(40, 1000, 10) };
        let young = Pulse { steps: 2, ..pulse(1, 1000, 10) };
        assert_eq!(hung(1_700_000, &[suspect(0, &saving), suspect(1, &young)], &RULE), None);
        assert_eq!(hung(1_801_000, &[suspect(0, &saving)], &RULE).unwrap().0, 0);
        assert_eq!(hung(1_801_000, &[suspect(1, &young)], &RULE).unwrap().0, 1);
    }

    #[test]
    fn silence_counts_only_when_asked_for() {
        let quiet = Suspect { rank: 1, pulse: None, heard_ms: Some(1000) };
        assert_eq!(hung(999_999, &[quiet], &RULE), None);
        let rule = HangRule { silence_ms: 5000, ..RULE };
        let quiet = Suspect { rank: 1, pulse: None, heard_ms: Some(1000) };
        assert_eq!(hung(6000, &[quiet], &rule).unwrap().1, "rank 1 hangs: silent for 5.0 s");
    }

    proptest! {
        #[test]
        fn who_makes_steps_in_time_never_hangs(typical in 1..5000u64, late in 0..1000u64) {
            let one = pulse(7, 10_000, typical);
            let allowed = patience_ms(&one, &RULE).unwrap();
            let now_ms = 10_000 + allowed.saturating_sub(1 + late);
            prop_assert_eq!(hung(now_ms, &[suspect(0, &one)], &RULE), None);
            let due = due_ms(&suspect(0, &one), &RULE).unwrap();
            prop_assert!(hung(due, &[suspect(0, &one)], &RULE).is_some());
        }
    }
}
