//! Weights by step, as a recipe has them, as [`Change`]s by position.

use super::error::PlanError;
use super::mixture::{Change, Movement};
use super::ramp::{Curve, Ramp};
use super::steps::BatchSchedule;

/// Weights that hold from a step on, or move from there.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightEntry {
    /// First step.
    pub step: u64,
    /// One per source.
    pub weights: Vec<f64>,
    /// Where they move to, if they do.
    pub ramp: Option<RampTo>,
}

/// Where weights move to, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct RampTo {
    /// One per source.
    pub weights: Vec<f64>,
    /// The first step that has them.
    pub until: u64,
    /// How they move; stairs are counted in steps.
    pub curve: Curve,
}

/// What changes at which position. A ramp is followed by its weights after, unless the next entry comes first and breaks it
/// off; a batch that changes its size during a ramp begins another part of it, since ramps go by steps.
pub fn changes_of(steps: &BatchSchedule, entries: &[WeightEntry]) -> Result<Vec<Change>, PlanError> {
    let mut changes = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let start = |step: u64| steps.positions(step).map(|positions| positions.start);
        let Some(ramp) = &entry.ramp else {
            changes.push(Change::fixed(start(entry.step)?, entry.weights.clone()));
            continue;
        };
        if ramp.until <= entry.step {
            let (previous, next) = (entry.step, ramp.until);
            return Err(PlanError::ScheduleOrder { schedule: "weights", previous, next });
        }
        let broken_off = entries.get(at + 1).map(|next| next.step).filter(|next| *next < ramp.until);
        let stop = broken_off.unwrap_or(ramp.until);
        for step in std::iter::once(entry.step).chain(steps.changes(entry.step + 1..stop)) {
            changes.push(Change {
                from: start(step)?,
                weights: entry.weights.clone(),
                movement: Some(movement(ramp, entry.step, step, steps.batch(step))?),
            });
        }
        if entries.get(at + 1).is_none_or(|next| next.step > ramp.until) {
            changes.push(Change::fixed(start(ramp.until)?, ramp.weights.clone()));
        }
    }
    Ok(changes)
}

/// The part of a ramp that begins at `step`, where a step has `rows` rows.
fn movement(ramp: &RampTo, begin: u64, step: u64, rows: u64) -> Result<Movement, PlanError> {
    let places = |steps: u64| {
        let too_far = PlanError::TooFar { what: "a ramp", most: super::ramp::RAMP_MAX };
        steps.checked_mul(rows).ok_or(too_far)
    };
    let curve = match ramp.curve {
        Curve::Stairs { every } => Curve::Stairs { every: places(every.min(ramp.until - begin))? },
        curve => curve,
    };
    Ok(Movement {
        to: ramp.weights.clone(),
        ramp: Ramp::new(curve, places(ramp.until - begin)?)?,
        offset: places(step - begin)?,
        step_rows: rows,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Exhaustion, Key, Mixture};

    fn ramp(step: u64, from: &[f64], to: &[f64], until: u64, curve: Curve) -> WeightEntry {
        let ramp = Some(RampTo { weights: to.to_vec(), until, curve });
        WeightEntry { step, weights: from.to_vec(), ramp }
    }

    fn fixed(step: u64, weights: &[f64]) -> WeightEntry {
        WeightEntry { step, weights: weights.to_vec(), ramp: None }
    }

    fn mixture(
        steps: &BatchSchedule,
        entries: &[WeightEntry],
        limits: &[Option<u64>],
        drop: bool,
    ) -> Mixture {
        let exhaustion = if drop { Exhaustion::Drop } else { Exhaustion::Stop };
        Mixture::new(Key::mixture(3), &changes_of(steps, entries).unwrap(), limits, exhaustion).unwrap()
    }

    /// Sources' items in order from 0, none twice and none left out; how many each gave.
    fn walked(mixture: &Mixture, end: u64) -> Vec<u64> {
        let mut next = vec![0; 2];
        let mut position = 0;
        while let Some(table) = mixture.period_at(position).filter(|_| position < end) {
            for position in position..table.positions().end.min(end) {
                let place = table.locate(position).unwrap();
                let next = &mut next[usize::from(place.source)];
                assert_eq!(place.index, *next, "at {position}");
                *next += 1;
            }
            position = table.positions().end;
        }
        next
    }

    fn any_curve() -> impl Strategy<Value = Curve> {
        prop_oneof![
            Just(Curve::Linear),
            Just(Curve::Cosine),
            (1..50_u64).prop_map(|every| Curve::Stairs { every })
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Goal: 0 lost and 0 repeated through ramps that are begun, broken off and ended, through changes of the batch and
        /// sources that run out. Method: walk any of them, and open anywhere.
        #[test]
        fn no_ramp_loses_or_repeats_an_item(
            (curve, other) in (any_curve(), any_curve()),
            (batch, later, at) in (1..70_u64, 1..70_u64, 1..300_u64),
            (until, cut) in (2..400_u64, 1..400_u64),
            limits in prop::option::of((1..4_000_u64, 1..4_000_u64)),
            drop in any::<bool>(),
            opened in prop::collection::vec(0..20_000_u64, 6),
        ) {
            let steps = BatchSchedule::new(&[(0, batch), (at, later)]).unwrap();
            let entries = [
                ramp(0, &[0.9, 0.1], &[0.0, 1.0], until, curve),
                ramp(cut, &[0.5, 0.5], &[1.0, 0.0], cut + until, other),
                fixed(cut + 2 * until, &[0.5, 0.5]),
            ];
            let limits = limits.map_or([None; 2], |(one, two)| [Some(one), Some(two)]);
            let mixed = mixture(&steps, &entries, &limits, drop);
            let end = mixed.end().unwrap_or(u64::MAX).min(20_000);
            let counts = walked(&mixed, end);
            prop_assert_eq!(counts.iter().sum::<u64>(), end);
            for (count, limit) in counts.iter().zip(limits) {
                prop_assert!(limit.is_none_or(|limit| *count <= limit));
            }
            for position in opened.into_iter().filter(|position| *position < end) {
                // Whoever opens there knows the same without having been anywhere before.
                let fresh = mixture(&steps, &entries, &limits, drop);
                prop_assert_eq!(fresh.locate(position), mixed.locate(position));
                prop_assert_eq!(fresh.counts_before(position).unwrap().iter().sum::<u64>(), position);
            }
        }

        /// Goal: an entry that is added later moves nothing before it. Method: break any ramp off.
        #[test]
        fn a_ramp_that_is_broken_off_is_the_same_up_to_there(curve in any_curve(), cut in 1..100_u64) {
            let steps = BatchSchedule::new(&[(0, 8), (20, 24)]).unwrap();
            let whole = [ramp(0, &[1.0, 0.0], &[0.2, 0.8], 100, curve)];
            let cut_off = [whole[0].clone(), fixed(cut, &[0.5, 0.5])];
            let (whole, cut_off) = (mixture(&steps, &whole, &[None; 2], false), mixture(&steps, &cut_off, &[None; 2], false));
            let end = steps.positions(cut).unwrap().start;
            for position in 0..end {
                prop_assert_eq!(whole.locate(position), cut_off.locate(position));
            }
        }
    }

    /// Goal: every step has its weights. Method: count the rows of each step.
    #[test]
    fn the_shares_of_a_step_are_those_of_the_curve_at_it() {
        let steps = BatchSchedule::new(&[(0, 100), (500, 200)]).unwrap();
        for curve in [Curve::Linear, Curve::Cosine, Curve::Stairs { every: 100 }] {
            let mixed =
                mixture(&steps, &[ramp(0, &[1.0, 0.0], &[0.0, 1.0], 1_000, curve)], &[None; 2], false);
            let share = Ramp::new(curve, 1_000).unwrap();
            for step in [0, 1, 250, 499, 500, 501, 750, 999] {
                let positions = steps.positions(step).unwrap();
                let count = |position| mixed.counts_before(position).unwrap()[1];
                let actual = count(positions.end) - count(positions.start);
                let ideal = share.part(step) * steps.batch(step) as f64;
                assert!((actual as f64 - ideal).abs() < 1.7, "{curve:?} at {step}: {actual}, not {ideal}");
            }
            assert_eq!(mixed.counts_before(200_000).unwrap()[0], mixed.counts_before(150_000).unwrap()[0]);
        }
    }

    #[test]
    fn a_ramp_of_a_million_steps_is_one_change_and_ends_exactly() {
        let steps = BatchSchedule::constant(64).unwrap();
        let changes = changes_of(&steps, &[ramp(0, &[1.0], &[1.0], 1_000_000, Curve::Linear)]).unwrap();
        let from: Vec<u64> = changes.iter().map(|change| change.from).collect();
        assert_eq!(from, [0, 64_000_000]);
        let next = [ramp(0, &[1.0], &[1.0], 10, Curve::Linear), fixed(10, &[1.0])];
        assert_eq!(changes_of(&steps, &next).unwrap().len(), 2);
        assert!(changes_of(&steps, &[ramp(5, &[1.0], &[1.0], 5, Curve::Linear)]).is_err());
        assert!(changes_of(&steps, &[ramp(0, &[1.0], &[1.0], 1 << 60, Curve::Linear)]).is_err());
    }
}
