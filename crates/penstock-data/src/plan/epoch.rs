//! The order of one epoch of a source: which pack of which block stands at an index.
//!
//! Blocks are put into keyed order and cut into windows; inside a window, packs of all its blocks are put into keyed order.
//! Opening sums the packs of each window (one pass over four bytes per block, whatever the position), and reaching an index
//! is a binary search over those sums and the work of one window. A [`Window`] can be kept by whoever reads on.

use std::ops::Range;

use super::error::PlanError;
use super::even::Even;
use super::key::Key;
use super::order::{Permutation, Shuffle};

/// The order of the samples of a block in an epoch. `epoch` is the epoch's key, `rows` the block's number of samples.
pub fn in_block(epoch: &Key, shuffle: Shuffle, block: u64, rows: u64) -> Permutation {
    Permutation::of(shuffle, &epoch.derive("block", &[block.into()]), rows)
}

/// The order of the packs of one epoch. `T` holds the number of packs of each block: a slice, a vector, or mapped memory.
#[derive(Debug, Clone)]
pub struct EpochPlan<T> {
    packs_per_block: T,
    key: Key,
    shuffle: Shuffle,
    /// From place in the epoch to block.
    blocks: Permutation,
    /// Which run of places is which window.
    windows: Even,
    /// Packs before each window, and after the last.
    starts: Vec<u64>,
}

impl<T: AsRef<[u32]>> EpochPlan<T> {
    /// The order of the epoch that `key` stands for.
    pub fn new(packs_per_block: T, key: &Key, shuffle: Shuffle) -> Result<Self, PlanError> {
        Self::with_window(packs_per_block, key, shuffle, shuffle.window_blocks())
    }

    /// The same with windows of at least `window_blocks` blocks.
    pub fn with_window(
        packs_per_block: T,
        key: &Key,
        shuffle: Shuffle,
        window_blocks: u64,
    ) -> Result<Self, PlanError> {
        let packs = packs_per_block.as_ref();
        let blocks = Permutation::of(shuffle, &key.derive("blocks", &[]), packs.len() as u64);
        let windows = Even::at_least(packs.len() as u64, window_blocks);
        let mut starts = Vec::with_capacity(windows.parts() as usize + 1);
        let mut total = 0_u64;
        starts.push(total);
        for places in (0..windows.parts()).filter_map(|window| windows.range(window)) {
            let sum: u64 = places
                .filter_map(|place| blocks.at(place))
                .map(|block| u64::from(packs[block as usize]))
                .sum();
            total = total
                .checked_add(sum)
                .ok_or(PlanError::TooFar { what: "the number of packs of an epoch", most: u64::MAX })?;
            starts.push(total);
        }
        Ok(Self { packs_per_block, key: *key, shuffle, blocks, windows, starts })
    }

    /// How many packs the epoch has.
    pub fn packs(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The block and the pack of it at an index, or `None` past the end.
    pub fn locate(&self, index: u64) -> Option<(u64, u32)> {
        self.window_at(index)?.locate(index)
    }

    /// The window that holds an index, or `None` past the end.
    pub fn window_at(&self, index: u64) -> Option<Window> {
        if index >= self.packs() {
            return None;
        }
        // Windows without packs hold no index, so the last one that begins at or before it is meant.
        let window = self.starts.partition_point(|start| *start <= index) - 1;
        let packs = self.packs_per_block.as_ref();
        let mut ends = vec![];
        let mut blocks = vec![];
        let mut end = 0_u64;
        for block in self.windows.range(window as u64)?.filter_map(|place| self.blocks.at(place)) {
            end += u64::from(packs[block as usize]);
            ends.push(end);
            blocks.push(block);
        }
        let key = self.key.derive("window", &[(window as u64).into()]);
        let order = Permutation::of(self.shuffle, &key, end);
        Some(Window { start: self.starts[window], blocks, ends, order })
    }
}

/// A run of an epoch's indexes, whose packs come from a few hundred blocks.
#[derive(Debug, Clone)]
pub struct Window {
    /// First index.
    start: u64,
    /// Its blocks.
    blocks: Vec<u64>,
    /// Packs up to and including those of each block.
    ends: Vec<u64>,
    order: Permutation,
}

impl Window {
    /// The indexes it covers.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.order.len()
    }

    /// The blocks whose packs it mixes.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// The block and the pack of it at an index of the epoch, or `None` outside the window.
    pub fn locate(&self, index: u64) -> Option<(u64, u32)> {
        let pack = self.order.at(index.checked_sub(self.start)?)?;
        let at = self.ends.partition_point(|end| *end <= pack);
        let before = if at == 0 { 0 } else { self.ends[at - 1] };
        Some((*self.blocks.get(at)?, (pack - before) as u32))
    }
}

/// The order of one epoch of rows that are not packed: row by row, without blocks to plan.
#[derive(Debug, Clone)]
pub struct RowOrder(Rows);

#[derive(Debug, Clone)]
enum Rows {
    /// One order of all rows.
    Whole(Permutation),
    /// Runs of neighbours as blocks, whose packs are their rows.
    Local { runs: Even, plan: EpochPlan<Vec<u32>> },
}

impl RowOrder {
    /// Rows per block of a local order.
    const LOCAL_ROWS: u64 = 4_096;

    /// The order of `rows` rows in the epoch that `key` stands for.
    pub fn new(rows: u64, key: &Key, shuffle: Shuffle) -> Result<Self, PlanError> {
        if rows == 0 {
            return Err(PlanError::EmptySource);
        }
        if shuffle != Shuffle::Local {
            return Ok(Self(Rows::Whole(Permutation::of(shuffle, &key.derive("rows", &[]), rows))));
        }
        let runs = Even::at_least(rows, Self::LOCAL_ROWS);
        let lengths =
            (0..runs.parts()).filter_map(|run| runs.range(run)).map(|run| (run.end - run.start) as u32);
        let plan = EpochPlan::new(lengths.collect(), key, shuffle)?;
        Ok(Self(Rows::Local { runs, plan }))
    }

    /// How many rows the epoch has.
    pub fn rows(&self) -> u64 {
        match &self.0 {
            Rows::Whole(order) => order.len(),
            Rows::Local { runs, .. } => runs.total(),
        }
    }

    /// The row at an index, or `None` past the end. A local order builds a window for it: see [`RowOrder::rows_in`].
    pub fn locate(&self, index: u64) -> Option<u64> {
        match &self.0 {
            Rows::Whole(order) => order.at(index),
            Rows::Local { runs, plan } => row_of(runs, plan.locate(index)?),
        }
    }

    /// Appends the rows at a range of indexes, up to the end of the epoch; each window of a local order is built once.
    pub fn rows_in(&self, range: Range<u64>, into: &mut Vec<u64>) {
        match &self.0 {
            Rows::Whole(order) => into.extend(range.map_while(|index| order.at(index))),
            Rows::Local { runs, plan } => {
                let mut next = range.start;
                while next < range.end {
                    let Some(window) = plan.window_at(next) else { return };
                    let end = window.range().end.min(range.end);
                    into.extend((next..end).filter_map(|index| row_of(runs, window.locate(index)?)));
                    next = end;
                }
            }
        }
    }
}

fn row_of(runs: &Even, (run, place): (u64, u32)) -> Option<u64> {
    Some(runs.range(run)?.start + u64::from(place))
}

#[cfg(test)]
mod tests;
