//! Whose turn it is at a position, while sources may still be growing.
//!
//! A source that is measured era by era has a length that nobody knows before its last era. Lengths matter only where a source
//! runs out: up to there a mixture with an endless source is the same as one with its limit. So a step can be made as soon
//! as it ends before anything that is not known could run out or be read, and it comes out the same as if all had been
//! known from the beginning. When the last era of a source is there, the source gets its limit and the mixture is made
//! anew; nothing that was decided before changes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::FeedError;
use crate::plan::{Change, Exhaustion, Key, Mixture, PERIOD, PeriodTable, Place, PlanError};

/// Periods of the mixture that are kept; threads are never further apart than a few.
const PERIODS_KEPT: usize = 3;
/// On a ramp periods are steps, of which each thread makes another one.
const STEPS_KEPT: usize = 32;

/// How far a source is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All of it; so many rows it gives over all epochs, or any number.
    Whole(Option<u64>),
    /// So many rows from its beginning, and more are to come.
    Growing {
        /// Rows that are known.
        rows: u64,
        /// Whether it will run out some time.
        ends: bool,
    },
}

impl Reach {
    /// Whether all is decided up to a position before which the source gave so many rows.
    fn covers(self, count: u64) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Growing { rows, ends: false } => count <= rows,
            // The row after the last one matters too: the stream may end with the last, or go on without the source.
            Self::Growing { rows, ends: true } => count < rows,
        }
    }

    fn limit(self) -> Option<u64> {
        match self {
            Self::Whole(limit) => limit,
            Self::Growing { .. } => None,
        }
    }
}

/// What a mixture is made from, apart from the lengths of its sources.
pub struct MixtureRecipe {
    /// The origin of its layout.
    pub key: Key,
    /// Weights by position.
    pub changes: Vec<Change>,
    /// What happens when a source runs out.
    pub exhaustion: Exhaustion,
}

struct Source {
    reach: Reach,
    /// How many of its rows the furthest step that was asked for needs.
    wanted: u64,
    /// Why no more of it will be known.
    failed: Option<FeedError>,
}

struct State {
    sources: Vec<Source>,
    mixture: Arc<Mixture>,
    /// Counts mixtures, so that periods of an earlier one are never used.
    generation: u64,
    periods: VecDeque<(u64, Arc<PeriodTable>)>,
    stopped: bool,
}

impl State {
    /// The period that holds a position, if it is kept.
    fn period(&self, position: u64, generation: u64) -> Option<&Arc<PeriodTable>> {
        let holds = |(known, period): &&(u64, Arc<PeriodTable>)| {
            *known == generation && period.positions().contains(&position)
        };
        self.periods.iter().find(holds).map(|(_, period)| period)
    }
}

/// The mixture as far as it is known, and those who wait for more of it.
pub struct Turns {
    recipe: MixtureRecipe,
    state: Mutex<State>,
    /// Something more is known, or nothing more will be.
    changed: Condvar,
    /// Whether every source is whole: then no step has to wait.
    whole: AtomicBool,
}

impl Turns {
    /// With what is known of the sources at the beginning.
    pub fn new(recipe: MixtureRecipe, sources: &[Reach]) -> Result<Self, PlanError> {
        let mixture = Arc::new(recipe.mixture(sources)?);
        let source = |&reach: &Reach| Source { reach, wanted: 0, failed: None };
        let state = State {
            sources: sources.iter().map(source).collect(),
            mixture,
            generation: 0,
            periods: VecDeque::new(),
            stopped: false,
        };
        let whole = AtomicBool::new(is_whole(&state));
        Ok(Self { recipe, state: Mutex::new(state), changed: Condvar::new(), whole })
    }

    /// The first position that does not exist, when that is `position` or before it, as far as that is known.
    pub fn end_by(&self, position: u64) -> Option<u64> {
        self.now().1.end_by(position)
    }

    /// Whose turn it is at a position, and which item; `None` past the end. Right for steps that are [ready](Self::wait).
    pub fn place(&self, position: u64) -> Option<Place> {
        let state = self.hold();
        if let Some(period) = state.period(position, state.generation) {
            return period.locate(position);
        }
        let (generation, mixture) = (state.generation, Arc::clone(&state.mixture));
        drop(state);
        self.period(position, generation, &mixture)?.locate(position)
    }

    /// How many rows each source gives before a position; `None` past the end.
    pub fn counts_before(&self, position: u64) -> Option<Vec<u64>> {
        self.now().1.counts_before(position)
    }

    /// Waits until all is known that the positions before `end` depend on, at most for `timeout`; whether it is.
    pub fn wait(&self, end: u64, timeout: Duration) -> Result<bool, FeedError> {
        if self.whole.load(Ordering::Acquire) {
            return Ok(true);
        }
        let begun = Instant::now();
        loop {
            let (generation, counts) = self.needs_before(end);
            let mut state = self.hold();
            if state.generation != generation {
                continue;
            }
            if self.is_covered(&mut state, &counts)? {
                return Ok(true);
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            drop(self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Says how far a source is known now.
    pub fn extend(&self, source: usize, reach: Reach) -> Result<(), PlanError> {
        let mut state = self.hold();
        state.sources[source].reach = reach;
        if reach.limit().is_some() {
            let reaches: Vec<Reach> = state.sources.iter().map(|source| source.reach).collect();
            state.mixture = Arc::new(self.recipe.mixture(&reaches)?);
            state.generation += 1;
            state.periods.clear();
        }
        self.whole.store(is_whole(&state), Ordering::Release);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Says that no more of a source will be known; steps that need more get the error.
    pub fn fail(&self, source: usize, why: FeedError) {
        self.hold().sources[source].failed.get_or_insert(why);
        self.changed.notify_all();
    }

    /// Ends all waits: the feed closes.
    pub fn stop(&self) {
        self.hold().stopped = true;
        self.changed.notify_all();
    }

    /// How many rows of each source the furthest step that was asked for needs.
    pub fn wanted(&self) -> Vec<u64> {
        self.hold().sources.iter().map(|source| source.wanted).collect()
    }

    fn is_covered(&self, state: &mut State, counts: &[u64]) -> Result<bool, FeedError> {
        if state.stopped {
            return Err(FeedError::Closed);
        }
        let mut covered = true;
        for (source, &count) in state.sources.iter_mut().zip(counts) {
            source.wanted = source.wanted.max(count);
            if source.reach.covers(count) {
                continue;
            }
            covered = false;
            if let Some(why) = &source.failed {
                return Err(why.clone());
            }
        }
        Ok(covered)
    }

    /// How many rows each source gives before a position, or before the end of the stream if that comes first; and under
    /// which generation of the mixture.
    fn needs_before(&self, position: u64) -> (u64, Vec<u64>) {
        let (generation, mixture) = self.now();
        let end = mixture.end_by(position).unwrap_or(position);
        let period = end.checked_sub(1).and_then(|last| self.period(last, generation, &mixture));
        (generation, period.map_or(vec![], |period| period.counts_before(end.min(period.positions().end))))
    }

    fn now(&self) -> (u64, Arc<Mixture>) {
        let state = self.hold();
        (state.generation, Arc::clone(&state.mixture))
    }

    fn period(&self, position: u64, generation: u64, mixture: &Mixture) -> Option<Arc<PeriodTable>> {
        if let Some(period) = self.hold().period(position, generation) {
            return Some(Arc::clone(period));
        }
        let period = Arc::new(mixture.period_at(position)?);
        let mut state = self.hold();
        state.periods.push_back((generation, Arc::clone(&period)));
        let rows = |periods: &VecDeque<(u64, Arc<PeriodTable>)>| -> u64 {
            periods.iter().map(|(_, period)| period.positions().end - period.positions().start).sum()
        };
        while state.periods.len() > PERIODS_KEPT
            && (state.periods.len() > STEPS_KEPT || rows(&state.periods) > PERIODS_KEPT as u64 * PERIOD)
        {
            state.periods.pop_front();
        }
        Some(period)
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MixtureRecipe {
    fn mixture(&self, sources: &[Reach]) -> Result<Mixture, PlanError> {
        let limits: Vec<Option<u64>> = sources.iter().map(|reach| reach.limit()).collect();
        Mixture::new(self.key, &self.changes, &limits, self.exhaustion)
    }
}

fn is_whole(state: &State) -> bool {
    state.sources.iter().all(|source| matches!(source.reach, Reach::Whole(_)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn recipe(weights: &[f64], later: u64, exhaustion: Exhaustion) -> MixtureRecipe {
        let turned = weights.iter().rev().copied().collect();
        let changes = vec![Change::fixed(0, weights.to_vec()), Change::fixed(later, turned)];
        MixtureRecipe { key: Key::mixture(7), changes, exhaustion }
    }

    /// What a reader sees of a step: all places, or that the stream has ended.
    fn seen(turns: &Turns, positions: std::ops::Range<u64>) -> Option<Vec<Option<Place>>> {
        if turns.end_by(positions.end).is_some_and(|end| positions.start >= end) {
            return None;
        }
        Some(positions.map(|position| turns.place(position)).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Goal: D1, what stands at a position does not depend on when sources became known. Method: any sources that grow in
        /// any portions; every step that may be made is compared with the same step when all was known, and every step may
        /// be made in the end.
        #[test]
        fn a_growing_mixture_is_the_one_that_was_known_from_the_beginning(
            sources in prop::collection::vec((1..10_u32, 1..60_u64, prop::option::of(1..4_u64), 0..20_u64), 1..4),
            batch in 1..9_u64,
            later in 1..200_u64,
            drops in any::<bool>(),
        ) {
            let exhaustion = if drops { Exhaustion::Drop } else { Exhaustion::Stop };
            let weights: Vec<f64> = sources.iter().map(|source| f64::from(source.0)).collect();
            let limit = |&(_, rows, epochs, _): &(u32, u64, Option<u64>, u64)| epochs.map(|epochs| epochs * rows);
            let whole: Vec<Reach> = sources.iter().map(|source| Reach::Whole(limit(source))).collect();
            let known = Turns::new(recipe(&weights, later, exhaustion), &whole).unwrap();
            let begins: Vec<Reach> = sources
                .iter()
                .map(|source| Reach::Growing { rows: source.3.min(source.1), ends: source.2.is_some() })
                .collect();
            let grown = Turns::new(recipe(&weights, later, exhaustion), &begins).unwrap();
            let mut reaches = begins;
            let mut turn = 0;
            for step in 0..60 {
                let positions = step * batch..(step + 1) * batch;
                while !grown.wait(positions.end, Duration::ZERO).unwrap() {
                    // Some source that is not whole yet becomes known further.
                    turn += 1;
                    let growing = (0..sources.len()).map(|at| (at + turn) % sources.len());
                    let at = growing.clone().find(|&at| matches!(reaches[at], Reach::Growing { .. })).unwrap();
                    let Reach::Growing { rows, ends } = reaches[at] else { unreachable!() };
                    let more = rows + 1 + rows % 5;
                    reaches[at] = if more >= sources[at].1 { Reach::Whole(limit(&sources[at])) }
                        else { Reach::Growing { rows: more, ends } };
                    grown.extend(at, reaches[at]).unwrap();
                }
                prop_assert_eq!(seen(&grown, positions.clone()), seen(&known, positions.clone()), "step {}", step);
                let filled = |turns: &Turns| turns.end_by(positions.end).is_none_or(|end| positions.end <= end);
                prop_assert_eq!(filled(&grown), filled(&known));
            }
        }
    }

    #[test]
    fn a_step_waits_for_what_it_needs_and_for_nothing_else() {
        let turns = Turns::new(
            recipe(&[1.0], 1 << 40, Exhaustion::Stop),
            &[Reach::Growing { rows: 10, ends: false }],
        )
        .unwrap();
        assert_eq!(turns.wait(10, Duration::ZERO), Ok(true));
        assert_eq!(turns.wait(11, Duration::ZERO), Ok(false));
        assert_eq!(turns.wanted(), [11]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.wait(25, SOON));
            turns.extend(0, Reach::Growing { rows: 20, ends: false }).unwrap();
            turns.extend(0, Reach::Whole(None)).unwrap();
            assert_eq!(waits.join().unwrap(), Ok(true));
        });
        assert_eq!(turns.wait(u64::MAX, Duration::ZERO), Ok(true));
    }

    #[test]
    fn a_failure_comes_to_the_steps_that_need_more_and_closing_to_all() {
        let turns = Turns::new(
            recipe(&[1.0, 1.0], 1 << 40, Exhaustion::Stop),
            &[Reach::Growing { rows: 10, ends: false }, Reach::Whole(None)],
        )
        .unwrap();
        let why = FeedError::Plan { reason: "damaged".into() };
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.wait(1_000, SOON));
            turns.fail(0, why.clone());
            assert_eq!(waits.join().unwrap(), Err(why.clone()));
        });
        assert_eq!(turns.wait(10, SOON), Ok(true));
        assert_eq!(turns.wait(1_000, SOON), Err(why));
        turns.stop();
        assert_eq!(turns.wait(10, SOON), Err(FeedError::Closed));
    }
}
