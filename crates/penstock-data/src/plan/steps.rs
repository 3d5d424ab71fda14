//! Which positions a step covers, and which rows of a step a lane receives.
//!
//! Positions are fixed before lanes are dealt, which is what lets a run resume with another number of lanes: the stream
//! stays the same and only the dealing changes (D2).

use std::ops::Range;

use super::error::PlanError;

/// Rows per step, over all lanes, as a function of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSchedule {
    /// Never empty; begins at step 0 and position 0; steps and positions rise.
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    step: u64,
    position: u64,
    batch: u64,
}

impl BatchSchedule {
    /// From `(first step, rows per step)`, beginning at step 0.
    pub fn new(schedule: &[(u64, u64)]) -> Result<Self, PlanError> {
        let mut entries: Vec<Entry> = Vec::with_capacity(schedule.len());
        for &(step, batch) in schedule {
            let position = match entries.last() {
                None if step == 0 => 0,
                None => return Err(start_error(format!("at {step}"))),
                Some(last) if step <= last.step => {
                    let previous = last.step;
                    return Err(PlanError::ScheduleOrder { schedule: "batch", previous, next: step });
                }
                Some(last) => last.position_of(step).ok_or_else(too_far)?,
            };
            if batch == 0 {
                return Err(PlanError::EmptyBatch { step });
            }
            entries.push(Entry { step, position, batch });
        }
        if entries.is_empty() { Err(start_error("nowhere".to_owned())) } else { Ok(Self { entries }) }
    }

    /// The same number of rows in every step.
    pub fn constant(batch: u64) -> Result<Self, PlanError> {
        Self::new(&[(0, batch)])
    }

    /// Rows of a step.
    pub fn batch(&self, step: u64) -> u64 {
        self.entry(|entry| entry.step <= step).batch
    }

    /// The steps of a range at which the number of rows changes.
    pub fn changes(&self, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|entry| entry.step).filter(move |step| range.contains(step))
    }

    /// The positions of a step.
    pub fn positions(&self, step: u64) -> Result<Range<u64>, PlanError> {
        let entry = self.entry(|entry| entry.step <= step);
        let start = entry.position_of(step).ok_or_else(too_far)?;
        Ok(start..start.checked_add(entry.batch).ok_or_else(too_far)?)
    }

    /// The step that covers a position, and the position's row in it.
    pub fn find(&self, position: u64) -> (u64, u64) {
        let entry = self.entry(|entry| entry.position <= position);
        let rows = position - entry.position;
        // No overflow: a later step has a later position.
        (entry.step + rows / entry.batch, rows % entry.batch)
    }

    /// The last entry that holds `begun`, which the first one always does.
    fn entry(&self, begun: impl Fn(&Entry) -> bool) -> Entry {
        let next = self.entries.partition_point(begun);
        self.entries[next.max(1) - 1]
    }
}

impl Entry {
    fn position_of(&self, step: u64) -> Option<u64> {
        (step - self.step).checked_mul(self.batch)?.checked_add(self.position)
    }
}

/// The rows of `range` that lane `lane` of `lanes` receives: its contiguous share.
pub fn lane_rows(range: Range<u64>, lane: u64, lanes: u64) -> Result<Range<u64>, PlanError> {
    if lane >= lanes {
        return Err(PlanError::NoSuchLane { lane, lanes });
    }
    let rows = range.end.saturating_sub(range.start);
    if rows % lanes != 0 {
        return Err(PlanError::LanesDoNotDivide { rows, lanes });
    }
    let share = rows / lanes;
    let start = range.start + lane * share;
    Ok(start..start + share)
}

fn start_error(begins: String) -> PlanError {
    PlanError::ScheduleStart { schedule: "batch", begins }
}

fn too_far() -> PlanError {
    PlanError::TooFar { what: "the position of a step", most: u64::MAX }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn advance(next: &mut u64, gap: u64) -> u64 {
        *next += gap;
        *next - gap
    }

    fn any_schedule() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((1..20_u64, 1..50_u64), 1..8).prop_map(|gaps| {
            let mut next = 0;
            gaps.into_iter().map(|(gap, batch)| (advance(&mut next, gap), batch)).collect()
        })
    }

    proptest! {
        /// Goal: steps partition the positions. Method: walk the steps of any schedule; find every position again.
        #[test]
        fn steps_partition_the_positions(schedule in any_schedule()) {
            let steps = BatchSchedule::new(&schedule).unwrap();
            let mut next = 0;
            for step in 0..200 {
                let range = steps.positions(step).unwrap();
                let &(_, batch) = schedule.iter().rev().find(|(first, _)| *first <= step).unwrap();
                prop_assert_eq!((range.start, range.end - range.start, steps.batch(step)), (next, batch, batch));
                for position in range.clone() {
                    prop_assert_eq!(steps.find(position), (step, position - range.start));
                }
                next = range.end;
            }
        }

        /// Goal: D2, lanes partition a step. Method: any range, any number of lanes that divides it.
        #[test]
        fn lanes_partition_the_rows(start in 0..u64::MAX / 2, share in 0..1_000_u64, lanes in 1..300_u64) {
            let range = start..start + share * lanes;
            let mut next = start;
            for lane in 0..lanes {
                let rows = lane_rows(range.clone(), lane, lanes).unwrap();
                prop_assert_eq!((rows.start, rows.end), (next, next + share));
                next = rows.end;
            }
            prop_assert_eq!(next, range.end);
        }
    }

    #[test]
    fn a_step_is_found_however_far_it_is() {
        let steps = BatchSchedule::new(&[(0, 32), (1_000, 64), (1 << 40, 4_096)]).unwrap();
        assert_eq!(steps.positions(1_000).unwrap(), 32_000..32_064);
        assert_eq!(steps.positions(1_000_000_000).unwrap().start, 32_000 + 64 * 999_999_000);
        let (step, row) = steps.find(u64::MAX);
        let range = steps.positions(step).unwrap_or(u64::MAX - row..u64::MAX);
        assert_eq!(range.start + row, u64::MAX);
        assert_eq!(steps.positions(u64::MAX), Err(too_far()));
    }

    #[test]
    fn what_cannot_be_a_schedule_is_refused() {
        let refused = |schedule: &[(u64, u64)]| BatchSchedule::new(schedule).unwrap_err();
        assert_eq!(refused(&[]).to_string(), "the batch schedule must begin at 0, and begins nowhere");
        assert_eq!(refused(&[(5, 1)]).to_string(), "the batch schedule must begin at 0, and begins at 5");
        assert_eq!(refused(&[(0, 0)]), PlanError::EmptyBatch { step: 0 });
        let order = PlanError::ScheduleOrder { schedule: "batch", previous: 3, next: 3 };
        assert_eq!(refused(&[(0, 1), (3, 2), (3, 4)]), order);
        assert_eq!(refused(&[(0, u64::MAX), (2, 1)]), too_far());
        assert_eq!(refused(&[(0, 0)]), BatchSchedule::constant(0).unwrap_err());
    }

    #[test]
    fn lanes_that_do_not_divide_are_refused() {
        assert_eq!(lane_rows(0..64, 0, 3), Err(PlanError::LanesDoNotDivide { rows: 64, lanes: 3 }));
        assert_eq!(lane_rows(0..64, 4, 4), Err(PlanError::NoSuchLane { lane: 4, lanes: 4 }));
        assert_eq!(lane_rows(0..64, 0, 0), Err(PlanError::NoSuchLane { lane: 0, lanes: 0 }));
        assert_eq!(lane_rows(10..10, 2, 4), Ok(10..10));
    }
}
