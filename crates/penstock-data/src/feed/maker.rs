//! Makes the batch of a step for one lane, from nothing but the step's number.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::FeedError;
use super::ahead::MakeBatch;
use super::batch::{Batch, BatchBuilder, Origin, Pool};
use super::stream::SourceStream;
use crate::plan::{BatchSchedule, Mixture, PeriodTable, Place, lane_rows};

/// Periods of the mixture that are kept; threads are never further apart than a few.
const PERIODS_KEPT: usize = 3;

/// Whose turn it is, and how many rows a step has.
pub struct MixturePlan {
    /// Whose turn it is at every position.
    pub mixture: Mixture,
    /// Rows per step.
    pub steps: BatchSchedule,
    /// Whether a last step that the stream does not fill is delivered with empty rows, instead of not at all.
    pub pad_last: bool,
    /// Steps that are left out, in order and apart from each other.
    pub skips: Vec<Range<u64>>,
}

impl MixturePlan {
    /// The first step from `step` on that is not left out.
    fn unskipped(&self, step: u64) -> u64 {
        self.skips.iter().find(|range| range.contains(&step)).map_or(step, |range| range.end)
    }
}

/// See the module's description.
pub struct Maker {
    streams: Vec<SourceStream>,
    plan: MixturePlan,
    /// This lane, and how many there are.
    lane: (u64, u64),
    /// Tokens of a row.
    length: usize,
    /// Bytes of a token in a batch: the widest of the sources'.
    item_bytes: usize,
    pool: Arc<Pool>,
    periods: Mutex<VecDeque<Arc<PeriodTable>>>,
}

impl Maker {
    /// Joins sources; `lane` is this lane's number and how many there are.
    pub fn new(
        streams: Vec<SourceStream>,
        plan: MixturePlan,
        lane: (u64, u64),
        length: usize,
    ) -> Result<Self, FeedError> {
        let item_bytes = streams.iter().map(SourceStream::item_bytes).max().unwrap_or(1);
        Ok(Self { streams, plan, lane, length, item_bytes, pool: Arc::default(), periods: Mutex::default() })
    }

    /// Bytes of a batch of the step, or why lanes cannot share it; steps before the one that a feed opens at do not matter.
    pub fn batch_bytes(&self, step: u64) -> Result<usize, FeedError> {
        let (_, mine) = self.positions(step)?;
        Ok((mine.end - mine.start) as usize * self.length * self.item_bytes)
    }

    /// All positions of a step, and this lane's.
    fn positions(&self, step: u64) -> Result<(Range<u64>, Range<u64>), FeedError> {
        let all = self.plan.steps.positions(step)?;
        let mine = lane_rows(all.clone(), self.lane.0, self.lane.1)?;
        Ok((all, mine))
    }

    fn place(&self, position: u64) -> Option<Place> {
        let kept = {
            let periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
            periods.iter().find(|period| period.positions().contains(&position)).map(Arc::clone)
        };
        if let Some(period) = kept {
            return period.locate(position);
        }
        let period = Arc::new(self.plan.mixture.period_at(position)?);
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        periods.push_back(Arc::clone(&period));
        if periods.len() > PERIODS_KEPT {
            periods.pop_front();
        }
        drop(periods);
        period.locate(position)
    }

    fn fill_row(&self, place: Place, into: &mut [u8], origins: &mut Vec<Origin>) -> Result<(), FeedError> {
        let stream = &self.streams[usize::from(place.source)];
        let stored = stream.item_bytes();
        if stored == self.item_bytes {
            return stream.fill(place.index, into, origins);
        }
        let mut narrow = vec![0; self.length * stored];
        stream.fill(place.index, &mut narrow, origins)?;
        for (wide, narrow) in into.chunks_exact_mut(self.item_bytes).zip(narrow.chunks_exact(stored)) {
            // Little endian: the value's bytes come first, zeros after them.
            wide[..stored].copy_from_slice(narrow);
            wide[stored..].fill(0);
        }
        Ok(())
    }
}

impl MakeBatch for Maker {
    fn first_from(&self, step: u64) -> u64 {
        self.plan.unskipped(step)
    }

    fn make(&self, step: u64) -> Result<Option<Batch>, FeedError> {
        let (all, mine) = self.positions(step)?;
        // A step that the stream does not fill is no step, whichever lane asks, unless it is to be padded.
        let last = self.plan.mixture.end().is_some_and(|end| all.end > end);
        if last && !(self.plan.pad_last && self.plan.mixture.end().is_some_and(|end| all.start < end)) {
            return Ok(None);
        }
        let shape = ((mine.end - mine.start) as usize, self.length, self.item_bytes);
        let mut builder = BatchBuilder::new(step, mine.start, shape, &self.pool);
        let mut origins = Vec::with_capacity(16);
        for (row, position) in mine.enumerate() {
            origins.clear();
            let Some(place) = self.place(position) else {
                builder.row(row).fill(0);
                builder.close_row(row, position, &origins);
                continue;
            };
            self.fill_row(place, builder.row(row), &mut origins)?;
            for origin in &mut origins {
                origin.row = row as u32;
                origin.source = u32::from(place.source);
            }
            builder.close_row(row, position, &origins);
        }
        Ok(Some(builder.finish()))
    }
}
