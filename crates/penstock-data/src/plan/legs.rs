//! Where an index of a source lies: in which leg, of which epoch, and where in it.
//!
//! A source is a chain of *legs*: stretches of its endless index whose samples are packed alike. An epoch is the source's
//! *parts* in order, one leg each; most sources have a single part, so that every epoch is one leg. When the length of rows
//! changes, a new [`Phase`] begins at that exact index: what its part has not delivered in this epoch comes in a *rest* leg
//! packed to the new length, the parts after it follow in the new length, and then whole epochs do. Nothing is delivered
//! twice and nothing is left out, whatever the lengths.

use super::error::PlanError;
use super::key::Key;
use super::mixture::{Change, Exhaustion, Mixture};

/// A stretch of a source's index under one length of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// First index of the source in it.
    pub first: u64,
    /// The epoch that it goes on with.
    pub epoch: u64,
    /// Packs of its rest leg; 0 when a part ended exactly where it begins.
    pub rest: u64,
    /// The first part that comes after the rest; as many as there are parts when the next one begins another epoch.
    pub part: usize,
}

/// A leg of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LegPlace {
    /// What an earlier length left of the part before [`Phase::part`].
    Rest,
    /// All of a part.
    Part(usize),
}

/// Where an index lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stop {
    /// Which leg of its phase.
    pub leg: LegPlace,
    /// How often the source was read before.
    pub epoch: u64,
    /// Index in the leg.
    pub within: u64,
}

impl Phase {
    /// The phase that every source begins with.
    pub const FIRST: Self = Self { first: 0, epoch: 0, rest: 0, part: 0 };

    /// The phase that begins at `index`, which lay at `stop` until then; `rest` is the packs of what is left of that leg.
    pub fn change(&self, index: u64, stop: Stop, rest: u64) -> Self {
        let part = match stop.leg {
            LegPlace::Rest => self.part,
            LegPlace::Part(part) => part + usize::from(stop.within > 0),
        };
        Self { first: index, epoch: stop.epoch, rest, part }
    }

    /// The part whose samples the rest leg has.
    pub fn rest_part(&self) -> usize {
        self.part.saturating_sub(1)
    }

    /// Where an index lies that is not before the phase. `ends` are the packs up to and including each part, as far as parts
    /// are known, and `whole` says that there are no more; `None` when the index lies beyond them, or when there are no packs.
    pub fn locate(&self, index: u64, ends: &[u64], whole: bool) -> Option<Stop> {
        let mut left = index.checked_sub(self.first)?;
        if left < self.rest {
            return Some(Stop { leg: LegPlace::Rest, epoch: self.epoch, within: left });
        }
        left -= self.rest;
        let before = self.packs_before(ends)?;
        let total = ends.last().copied().unwrap_or(0);
        if left < total - before {
            return Some(in_part(ends, self.epoch, before + left));
        }
        left -= total - before;
        if !whole || total == 0 {
            return None;
        }
        Some(in_part(ends, self.epoch.checked_add(1 + left / total)?, left % total))
    }

    /// The first index after so many epochs, when all parts are known; that of the phase when they were over before it.
    pub fn end(&self, epochs: u64, ends: &[u64]) -> u64 {
        let Some(more) = epochs.checked_sub(self.epoch + 1) else { return self.first };
        let total = ends.last().copied().unwrap_or(0);
        let left = total - self.packs_before(ends).unwrap_or(total);
        self.first.saturating_add(self.rest).saturating_add(left).saturating_add(more.saturating_mul(total))
    }

    /// Packs of the parts before the phase's first; `None` while those parts are not all known.
    fn packs_before(&self, ends: &[u64]) -> Option<u64> {
        match self.part {
            0 => Some(0),
            part => ends.get(part - 1).copied(),
        }
    }
}

/// A source as far as its phases are planned: enough to say where it stands when the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// How often it may be read.
    pub epochs: Option<u64>,
    /// The last phase that is planned.
    pub phase: Phase,
    /// Packs up to and including each part under that phase's length.
    pub ends: Vec<u64>,
}

/// Where each source of a mixture stands when a position is reached: how many rows it has given, and where the next one lies.
/// `None` when the stream ends before. What comes after the position does not matter, so phases can be planned one by one.
pub fn stops_at(
    key: Key,
    changes: &[Change],
    exhaustion: Exhaustion,
    courses: &[Course],
    position: u64,
) -> Result<Option<Vec<(u64, Stop)>>, PlanError> {
    let limits: Vec<Option<u64>> = courses
        .iter()
        .map(|course| course.epochs.map(|epochs| course.phase.end(epochs, &course.ends)))
        .collect();
    let Some(counts) = Mixture::new(key, changes, &limits, exhaustion)?.counts_before(position) else {
        return Ok(None);
    };
    let stop = |(course, &count): (&Course, &u64)| {
        let stop = course.phase.locate(count, &course.ends, true).ok_or(PlanError::EmptySource)?;
        Ok((count, stop))
    };
    courses.iter().zip(&counts).map(stop).collect::<Result<_, _>>().map(Some)
}

fn in_part(ends: &[u64], epoch: u64, index: u64) -> Stop {
    // Parts without packs hold no index, so the first one that ends after it is meant.
    let part = ends.partition_point(|end| *end <= index);
    let first = if part == 0 { 0 } else { ends[part - 1] };
    Stop { leg: LegPlace::Part(part), epoch, within: index - first }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends_of(packs: &[u64]) -> Vec<u64> {
        packs
            .iter()
            .scan(0, |end, packs| {
                *end += packs;
                Some(*end)
            })
            .collect()
    }

    /// Legs one after another, the slow way: part, epoch and packs of each.
    fn legs(phase: &Phase, packs: &[u64]) -> Vec<(LegPlace, u64, u64)> {
        let mut legs = vec![(LegPlace::Rest, phase.epoch, phase.rest)];
        let from = |part: usize, epoch: u64| {
            (part..packs.len()).map(move |part| (LegPlace::Part(part), epoch, packs[part]))
        };
        legs.extend(from(phase.part, phase.epoch));
        (1..4).for_each(|more| legs.extend(from(0, phase.epoch + more)));
        legs
    }

    proptest! {
        /// Goal: legs follow each other without a gap. Method: walk any phase of any parts, and find each index again.
        #[test]
        fn an_index_lies_where_walking_the_legs_leads(
            packs in prop::collection::vec(0..5_u64, 1..6),
            first in 0..100_u64,
            epoch in 0..9_u64,
            rest in 0..4_u64,
            part in 0..6_usize,
        ) {
            let part = if rest > 0 { 1 + part % packs.len() } else { part % packs.len() };
            let (phase, ends) = (Phase { first, epoch, rest, part }, ends_of(&packs));
            let mut index = first;
            let mut last_epoch = epoch;
            for (leg, epoch, packs) in legs(&phase, &packs) {
                if epoch > last_epoch {
                    prop_assert_eq!(phase.end(epoch, &ends), index);
                    last_epoch = epoch;
                }
                for within in 0..packs {
                    prop_assert_eq!(phase.locate(index, &ends, true), Some(Stop { leg, epoch, within }));
                    index += 1;
                }
            }
            prop_assert_eq!(phase.end(epoch, &ends), first);
            if ends.last() == Some(&0) {
                prop_assert_eq!(phase.locate(index, &ends, true), None);
            }
            prop_assert_eq!((Phase { first: first + 1, ..phase }).locate(first, &ends, true), None);
        }

        /// Goal: parts that come later change nothing before them. Method: look with only some of the parts known.
        #[test]
        fn what_is_known_of_the_parts_is_enough_for_what_lies_in_them(
            packs in prop::collection::vec(1..5_u64, 1..6),
            known in 0..6_usize,
        ) {
            let (ends, known) = (ends_of(&packs), known.min(packs.len()));
            for index in 0..ends[packs.len() - 1] {
                let stop = Phase::FIRST.locate(index, &ends, true);
                let part = ends.partition_point(|end| *end <= index);
                let expected = if part < known { stop } else { None };
                prop_assert_eq!(Phase::FIRST.locate(index, &ends[..known], false), expected);
            }
        }
    }

    #[test]
    fn a_change_goes_on_after_what_it_breaks_off() {
        let phase = Phase { first: 10, epoch: 2, rest: 3, part: 1 };
        let stop = |leg, epoch, within| Stop { leg, epoch, within };
        let changed = phase.change(12, stop(LegPlace::Rest, 2, 2), 1);
        assert_eq!(changed, Phase { first: 12, epoch: 2, rest: 1, part: 1 });
        let changed = phase.change(20, stop(LegPlace::Part(1), 3, 4), 7);
        assert_eq!((changed, changed.rest_part()), (Phase { first: 20, epoch: 3, rest: 7, part: 2 }, 1));
        let changed = phase.change(20, stop(LegPlace::Part(1), 3, 0), 0);
        assert_eq!(changed, Phase { first: 20, epoch: 3, rest: 0, part: 1 });
    }

    /// Goal: a change is planned from what lies before it. Method: what comes later in the schedule, and how much a source has
    /// after the position, change nothing there.
    #[test]
    fn where_sources_stand_depends_on_nothing_later() {
        let course = |epochs, packs| Course { epochs, phase: Phase::FIRST, ends: vec![packs] };
        let first = Change::fixed(0, vec![1.0, 2.0]);
        let later = Change::fixed(100, vec![5.0, 1.0]);
        let stops = |changes: &[Change], courses: &[Course], position| {
            stops_at(Key::mixture(3), changes, Exhaustion::Stop, courses, position).unwrap()
        };
        let courses = [course(Some(9), 20), course(None, 7)];
        let standings = stops(std::slice::from_ref(&first), &courses, 60).unwrap();
        assert_eq!(standings.iter().map(|(count, _)| count).sum::<u64>(), 60);
        for ((count, stop), packs) in standings.iter().zip([20, 7]) {
            assert_eq!(
                (stop.leg, stop.epoch, stop.within),
                (LegPlace::Part(0), count / packs, count % packs)
            );
        }
        let others = [course(Some(90), 20), course(Some(90), 7)];
        assert_eq!(stops(&[first.clone(), later], &others, 60).unwrap(), standings);
        assert_eq!(stops(&[first], &[course(Some(1), 5), course(None, 7)], 60), None);
    }

    #[test]
    fn numbers_that_are_too_large_end_at_the_largest() {
        assert_eq!(Phase::FIRST.end(u64::MAX, &[u64::MAX]), u64::MAX);
        assert_eq!(Phase::FIRST.end(0, &[7]), 0);
    }
}
