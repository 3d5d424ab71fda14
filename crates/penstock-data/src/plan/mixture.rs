//! Sources joined by weights: whose turn it is at a position, and which of that source's items it gets.
//!
//! Positions come in periods of [`PERIOD`]. A [`Deal`] says how many places of a period each source has, a keyed shuffle says
//! which, and the item is the source's next one in that shuffled order; so the items of a source are used in order, none
//! twice and none left out. Weights that change and sources that run out begin a new *segment* at that exact position: it
//! takes over the counts so far, and its periods count from its start. Nothing before it moves, so a mixture may be edited
//! ahead of any position. On a ramp a period is a step, so that every step has the weights of its place on the ramp.
//!
//! Segments are worked out when a position in them is first asked for: what comes later costs nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::deal::Deal;
use super::error::PlanError;
use super::key::Key;
use super::ramp::Ramp;
use super::shares::{SOURCES_MAX, Shares};

/// Positions in a period.
pub const PERIOD: u64 = 65_536;

/// Positions go from 0 to below this: enough, and far from where arithmetic ends.
pub const POSITIONS_MAX: u64 = 1 << 62;

/// Weights that hold from a position on, one per source; 0 for a source that is not there.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// First position.
    pub from: u64,
    /// One per source. Only their ratios matter.
    pub weights: Vec<f64>,
    /// Where they move to, if they do.
    pub movement: Option<Movement>,
}

/// Weights on their way to others.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    /// The weights at the end, one per source.
    pub to: Vec<f64>,
    /// How they move there.
    pub ramp: Ramp,
    /// Places of the ramp before the change.
    pub offset: u64,
    /// Rows of a step, which are dealt together.
    pub step_rows: u64,
}

impl Change {
    /// Weights that stay.
    pub fn fixed(from: u64, weights: Vec<f64>) -> Self {
        Self { from, weights, movement: None }
    }

    /// Positions that are dealt together.
    fn period(&self) -> u64 {
        self.movement.as_ref().map_or(PERIOD, |movement| movement.step_rows.clamp(1, PERIOD))
    }

    fn deal(&self) -> Result<Deal, PlanError> {
        let before = Shares::new(&self.weights, self.from)?;
        let Some(movement) = &self.movement else { return Ok(Deal::Fixed(before)) };
        let after = Shares::new(&movement.to, self.from)?;
        Ok(Deal::moving(before, after, movement.ramp, movement.offset))
    }

    /// Why it cannot hold, if it cannot; quicker than to deal by it, since a schedule may have many.
    fn check(&self, sources: usize) -> Result<(), PlanError> {
        let to = self.movement.as_ref().map(|movement| &movement.to);
        for weights in std::iter::once(&self.weights).chain(to) {
            if weights.len() != sources {
                let (expected, found) = (sources, weights.len());
                return Err(PlanError::WeightCount { from: self.from, expected, found });
            }
            Shares::check(weights, self.from)?;
        }
        Ok(())
    }
}

/// What happens when a source that has a weight has given its last item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exhaustion {
    /// The stream ends there.
    Stop,
    /// The source leaves and the others share its places by their weights; with the last source the stream ends.
    Drop,
}

/// One item: of which source, and which of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The source, counted from 0.
    pub source: u16,
    /// Which of the source's items, counted from 0 over all epochs.
    pub index: u64,
}

/// A run of positions under the same weights, or on the same ramp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    start: u64,
    /// First position after it.
    end: u64,
    /// Positions of a period.
    period: u64,
    deal: Deal,
    /// How many items each source gave before.
    base: Vec<u64>,
}

impl Segment {
    /// First position.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many items each source gave before.
    pub fn base(&self) -> &[u64] {
        &self.base
    }

    /// How many items each source gave before period `period`.
    fn counts(&self, period: u64) -> Vec<u64> {
        let mut counts = self.deal.counts(period * self.period);
        counts.iter_mut().zip(&self.base).for_each(|(count, base)| *count += base);
        counts
    }

    /// Whose turn it is at each place of a period.
    fn turns(&self, key: &Key, period: u64) -> Vec<u16> {
        let (before, after) =
            (self.deal.counts(period * self.period), self.deal.counts((period + 1) * self.period));
        let mut turns = Vec::with_capacity(self.period as usize);
        for (source, (before, after)) in before.iter().zip(&after).enumerate() {
            turns.resize(turns.len() + (after - before) as usize, source as u16);
        }
        if turns.first() != turns.last() {
            key.derive("period", &[self.start.into(), period.into()]).draws().shuffle(&mut turns);
        }
        turns
    }

    /// How many periods begin before the segment ends.
    fn periods(&self) -> u64 {
        (self.end - self.start).div_ceil(self.period)
    }

    /// The position after the one at which the first of the limited sources gives its last item, if that comes.
    fn exhaustion(&self, key: &Key, limits: &[Option<u64>]) -> Option<u64> {
        let left = |source: usize| limits[source].map(|limit| limit - self.base[source]);
        let mut first = self.periods();
        for source in (0..limits.len()).filter(|source| self.deal.has(*source)) {
            let Some(left) = left(source) else { continue };
            // Only periods before the first one found so far matter.
            let (mut low, mut high) = (0, first);
            while low < high {
                let middle = low + (high - low) / 2;
                let used = self.deal.count(source, (middle + 1) * self.period) >= left;
                (low, high) = if used { (low, middle) } else { (middle + 1, high) };
            }
            first = low;
        }
        if first == self.periods() {
            return None;
        }
        let mut dealt = self.deal.counts(first * self.period);
        let place = self.turns(key, first).iter().position(|source| {
            let source = usize::from(*source);
            dealt[source] += 1;
            left(source) == Some(dealt[source])
        })?;
        Some(self.start + first * self.period + place as u64 + 1)
    }

    /// The period that holds one of its positions.
    fn period_at(&self, key: &Key, position: u64) -> PeriodTable {
        let period = (position - self.start) / self.period;
        let turns = self.turns(key, period);
        let base = self.counts(period);
        let mut dealt = vec![0_u32; base.len()];
        let ranks = turns.iter().map(|&source| {
            let dealt = &mut dealt[usize::from(source)];
            *dealt += 1;
            // A period has 65,536 places, so a rank is at most 65,535.
            (*dealt - 1) as u16
        });
        let ranks = ranks.collect();
        let start = self.start + period * self.period;
        PeriodTable { positions: start..self.end.min(start + self.period), turns, ranks, base }
    }

    /// How many items each source gave before its end.
    fn counts_at_end(&self, key: &Key) -> Vec<u64> {
        if (self.end - self.start) % self.period == 0 {
            return self.counts((self.end - self.start) / self.period);
        }
        let period = (self.end - 1 - self.start) / self.period;
        let places = (self.end - self.start - period * self.period) as usize;
        let mut counts = self.counts(period);
        // Not by a table: its ranks cost as much as the turns, and a long list of changes asks this of every one.
        self.turns(key, period)[..places].iter().for_each(|source| counts[usize::from(*source)] += 1);
        counts
    }
}

/// Whose turn it is at every position.
#[derive(Debug)]
pub struct Mixture {
    key: Key,
    changes: Vec<Change>,
    limits: Vec<Option<u64>>,
    exhaustion: Exhaustion,
    known: Mutex<Known>,
}

/// The segments that were asked for, and those before them.
#[derive(Debug, Default)]
struct Known {
    /// Starts rise from 0.
    segments: Vec<Arc<Segment>>,
    /// The change that the last segment is under.
    change: usize,
    /// Set when the stream ends after the last segment: how many items each source gave in all.
    total: Option<Vec<u64>>,
}

impl Known {
    /// First position that is not known.
    fn end(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.end)
    }
}

impl Mixture {
    /// A mixture with weights that change at stated positions, the first at 0. `limits` has one entry per source: how many
    /// items it can give over all epochs, or `None` when it is endless.
    pub fn new(
        key: Key,
        changes: &[Change],
        limits: &[Option<u64>],
        exhaustion: Exhaustion,
    ) -> Result<Self, PlanError> {
        check(changes, limits)?;
        let (changes, limits) = (changes.to_vec(), limits.to_vec());
        Ok(Self { key, changes, limits, exhaustion, known: Mutex::default() })
    }

    /// First position past the end of a stream that ends, or `None`. Works out every segment: see [`Mixture::end_by`].
    pub fn end(&self) -> Option<u64> {
        self.end_by(POSITIONS_MAX)
    }

    /// First position past the end, when the stream ends at `position` or before it.
    pub fn end_by(&self, position: u64) -> Option<u64> {
        let known = self.known_to(position);
        known.total.as_ref().map(|_| known.end()).filter(|end| *end <= position)
    }

    /// The runs of positions under the same weights, all of them.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.known_to(POSITIONS_MAX).segments.clone()
    }

    /// Whose turn it is at a position, and which item; `None` past the end. Works out a whole period: who reads on keeps
    /// the table from [`Mixture::period_at`].
    pub fn locate(&self, position: u64) -> Option<Place> {
        self.period_at(position)?.locate(position)
    }

    /// The period that holds a position, or `None` past the end.
    pub fn period_at(&self, position: u64) -> Option<PeriodTable> {
        let known = self.known_to(position);
        let next = known.segments.partition_point(|segment| segment.start <= position);
        let segment = Arc::clone(known.segments.get(next.checked_sub(1)?)?);
        drop(known);
        (position < segment.end).then(|| segment.period_at(&self.key, position))
    }

    /// How many items each source gave before a position; `None` for a position past the end.
    pub fn counts_before(&self, position: u64) -> Option<Vec<u64>> {
        let known = self.known_to(position);
        if known.total.is_some() && known.end() == position {
            return known.total.clone();
        }
        drop(known);
        Some(self.period_at(position)?.counts_before(position))
    }

    /// What is known once the segment of `position` is, or all of it where the stream ends before. Held while segments are
    /// worked out, since others need the same ones.
    fn known_to(&self, position: u64) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Ends, because every segment comes to the next change or uses up a source.
        while known.total.is_none() && known.end() <= position && known.end() < POSITIONS_MAX {
            self.extend(&mut known);
        }
        known
    }

    /// Works out the next segment, or that there is none.
    fn extend(&self, known: &mut Known) {
        let start = known.end();
        let counts = match known.segments.last() {
            None => vec![0; self.limits.len()],
            Some(last) => last.counts_at_end(&self.key),
        };
        let next = |change: usize| self.changes.get(change + 1).map(|next| next.from);
        known.change += usize::from(!known.segments.is_empty() && next(known.change) == Some(start));
        let change = &self.changes[known.change];
        let spent = |source: usize| self.limits[source].is_some_and(|limit| counts[source] >= limit);
        // Weights were checked, so there is a deal.
        let dealt = change.deal().ok().and_then(|deal| {
            let stopped = self.exhaustion == Exhaustion::Stop
                && (0..self.limits.len()).any(|source| spent(source) && deal.has(source));
            if stopped { None } else { deal.without(spent) }
        });
        let Some(deal) = dealt else {
            known.total = Some(counts);
            return;
        };
        let end = next(known.change).map_or(POSITIONS_MAX, |next| next.min(POSITIONS_MAX));
        let deal = deal.later(start - change.from);
        let mut segment = Segment { start, end, period: change.period(), deal, base: counts };
        segment.end = segment.exhaustion(&self.key, &self.limits).map_or(end, |spent| spent.min(end));
        known.segments.push(Arc::new(segment));
    }
}

/// All places of one period, worked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodTable {
    /// The positions it holds: fewer than the places below when the next segment cuts the period short.
    positions: Range<u64>,
    /// Whose turn it is at each place.
    turns: Vec<u16>,
    /// How many places of the same source come before, in this period.
    ranks: Vec<u16>,
    /// How many items each source gave before this period.
    base: Vec<u64>,
}

impl PeriodTable {
    /// The positions it can locate.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Whose turn it is at a position, and which item; `None` outside of the table.
    pub fn locate(&self, position: u64) -> Option<Place> {
        if !self.positions.contains(&position) {
            return None;
        }
        let place = (position - self.positions.start) as usize;
        let source = *self.turns.get(place)?;
        Some(Place { source, index: self.base[usize::from(source)] + u64::from(self.ranks[place]) })
    }

    /// How many items each source gave before a position, which is one of the table's or its end.
    pub(crate) fn counts_before(&self, position: u64) -> Vec<u64> {
        let mut counts = self.base.clone();
        let places = (position - self.positions.start) as usize;
        self.turns[..places].iter().for_each(|source| counts[usize::from(*source)] += 1);
        counts
    }
}

/// Why changes make no mixture, if they do not.
fn check(changes: &[Change], limits: &[Option<u64>]) -> Result<(), PlanError> {
    if limits.len() > SOURCES_MAX {
        return Err(PlanError::TooManySources { sources: limits.len(), most: SOURCES_MAX });
    }
    let begins = match changes.first() {
        Some(Change { from: 0, .. }) => None,
        Some(Change { from, .. }) => Some(format!("at {from}")),
        None => Some("nowhere".to_owned()),
    };
    if let Some(begins) = begins {
        return Err(PlanError::ScheduleStart { schedule: "weights", begins });
    }
    if let Some(pair) = changes.windows(2).find(|pair| pair[0].from >= pair[1].from) {
        let (previous, next) = (pair[0].from, pair[1].from);
        return Err(PlanError::ScheduleOrder { schedule: "weights", previous, next });
    }
    changes.iter().try_for_each(|change| change.check(limits.len()))
}

#[cfg(test)]
mod tests;
