//! Sources joined by weights: whose turn it is at a position, and which of that source's items it gets.
//!
//! Positions come in periods of [`PERIOD`]. [`Shares`] says how many places of a period each source has, a keyed shuffle says
//! which, and the item is the source's next one in that shuffled order; so the items of a source are used in order, none
//! twice and none left out. Weights that change and sources that run out begin a new *segment* at that exact position: it
//! takes over the counts so far, and its periods count from its start. Nothing before it moves, so a mixture may be edited
//! ahead of any position.

use std::ops::Range;

use super::error::PlanError;
use super::key::Key;
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

/// A run of positions under the same weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    start: u64,
    shares: Shares,
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

    /// The shares of the sources in it.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// How many items each source gave before period `period`.
    fn counts(&self, period: u64) -> Vec<u64> {
        let mut counts = self.shares.counts(period * PERIOD);
        counts.iter_mut().zip(&self.base).for_each(|(count, base)| *count += base);
        counts
    }

    /// Whose turn it is at each place of a period.
    fn turns(&self, key: &Key, period: u64) -> Vec<u16> {
        let (before, after) =
            (self.shares.counts(period * PERIOD), self.shares.counts((period + 1) * PERIOD));
        let mut turns = Vec::with_capacity(PERIOD as usize);
        for (source, (before, after)) in before.iter().zip(&after).enumerate() {
            turns.resize(turns.len() + (after - before) as usize, source as u16);
        }
        if turns.first() != turns.last() {
            key.derive("period", &[self.start.into(), period.into()]).draws().shuffle(&mut turns);
        }
        turns
    }

    /// How many periods can begin before [`POSITIONS_MAX`].
    fn periods(&self) -> u64 {
        (POSITIONS_MAX - self.start).div_ceil(PERIOD)
    }

    /// The position after the one at which the first of the limited sources gives its last item, if that comes.
    fn exhaustion(&self, key: &Key, limits: &[Option<u64>]) -> Option<u64> {
        let left = |source: usize| limits[source].map(|limit| limit - self.base[source]);
        let mut first = self.periods();
        for source in (0..limits.len()).filter(|source| self.shares.has(*source)) {
            let Some(left) = left(source) else { continue };
            // Only periods before the first one found so far matter.
            let (mut low, mut high) = (0, first);
            while low < high {
                let middle = low + (high - low) / 2;
                let used = self.shares.count(source, (middle + 1) * PERIOD) >= left;
                (low, high) = if used { (low, middle) } else { (middle + 1, high) };
            }
            first = low;
        }
        if first == self.periods() {
            return None;
        }
        let mut given = self.shares.counts(first * PERIOD);
        let place = self.turns(key, first).iter().position(|source| {
            let source = usize::from(*source);
            given[source] += 1;
            left(source) == Some(given[source])
        })?;
        Some(self.start + first * PERIOD + place as u64 + 1)
    }
}

/// Whose turn it is at every position.
#[derive(Debug, Clone)]
pub struct Mixture {
    key: Key,
    /// Starts rise from 0. Empty only when the stream is.
    segments: Vec<Segment>,
    /// First position that does not exist.
    end: u64,
    /// How many items each source gives in all, when the stream ends by itself.
    total: Option<Vec<u64>>,
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
        let shares = checked(changes, limits)?;
        let mut mixture = Self { key, segments: vec![], end: POSITIONS_MAX, total: None };
        let (mut position, mut counts) = (0, vec![0; limits.len()]);
        let mut change = 0;
        // Ends, because every turn either comes to the next change or uses up a source.
        loop {
            let spent = |source: usize| limits[source].is_some_and(|limit| counts[source] >= limit);
            let stopped = exhaustion == Exhaustion::Stop
                && (0..limits.len()).any(|source| spent(source) && shares[change].has(source));
            let left = if stopped { None } else { shares[change].without(spent) };
            let Some(left) = left else {
                mixture.end = position;
                mixture.total = Some(counts);
                return Ok(mixture);
            };
            let segment = Segment { start: position, shares: left, base: counts };
            let changed = changes.get(change + 1).map(|next| next.from);
            let next = changed.into_iter().chain(segment.exhaustion(&key, limits)).min();
            mixture.segments.push(segment);
            let Some(next) = next.filter(|next| *next < POSITIONS_MAX) else { return Ok(mixture) };
            counts = mixture.counts_in_last(next);
            change += usize::from(changed == Some(next));
            position = next;
        }
    }

    /// First position past the end of a stream that ends, or `None`.
    pub fn end(&self) -> Option<u64> {
        self.total.as_ref().map(|_| self.end)
    }

    /// The runs of positions under the same weights.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whose turn it is at a position, and which item; `None` past the end. Works out a whole period: who reads on keeps
    /// the table from [`Mixture::period_at`].
    pub fn locate(&self, position: u64) -> Option<Place> {
        self.period_at(position)?.locate(position)
    }

    /// The period that holds a position, or `None` past the end.
    pub fn period_at(&self, position: u64) -> Option<PeriodTable> {
        if position >= self.end {
            return None;
        }
        let next = self.segments.partition_point(|segment| segment.start <= position);
        let segment = self.segments.get(next.checked_sub(1)?)?;
        let period = (position - segment.start) / PERIOD;
        let turns = segment.turns(&self.key, period);
        let base = segment.counts(period);
        let mut given = vec![0_u32; base.len()];
        let ranks = turns.iter().map(|&source| {
            let given = &mut given[usize::from(source)];
            *given += 1;
            // A period has 65,536 places, so a rank is at most 65,535.
            (*given - 1) as u16
        });
        let ranks = ranks.collect();
        let start = segment.start + period * PERIOD;
        let end = self.segments.get(next).map_or(self.end, |segment| segment.start).min(start + PERIOD);
        Some(PeriodTable { positions: start..end, turns, ranks, base })
    }

    /// How many items each source gave before a position; `None` for a position past the end.
    pub fn counts_before(&self, position: u64) -> Option<Vec<u64>> {
        if position == self.end {
            return self.total.clone();
        }
        Some(self.period_at(position)?.counts_before(position))
    }

    /// The counts before `position`, which is not before the last segment and may be its end.
    fn counts_in_last(&self, position: u64) -> Vec<u64> {
        let before = self.period_at(position.max(1) - 1);
        before.map_or(vec![], |table| table.counts_before(position))
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

/// The shares of every change, or why there are none.
fn checked(changes: &[Change], limits: &[Option<u64>]) -> Result<Vec<Shares>, PlanError> {
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
    changes
        .iter()
        .map(|Change { from, weights }| match weights.len() == limits.len() {
            true => Shares::new(weights, *from),
            false => {
                let (expected, found) = (limits.len(), weights.len());
                Err(PlanError::WeightCount { from: *from, expected, found })
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
