//! One leg of a source: which samples stand at an index of it, in any epoch.
//!
//! A leg knows rows and lengths and reads no tokens. It is either packed, by a plan table, or plain: every stored row is a
//! row. See [`crate::plan::Phase`] for how legs make up a source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_io::Digest;

use super::FeedError;
use super::kept::{Kept, LegOrder, Ordered, PlannedBlock};
use super::table::Table;
use crate::plan::{EpochPlan, Key, Packs, Permutation, Policy, RowOrder, Shuffle, crop_at, in_block};

/// What a leg's rows are made of.
pub enum LegKind {
    /// Documents, packed.
    Packed {
        /// Which samples make up each block.
        table: Table,
        /// How they are joined.
        policy: Policy,
    },
    /// Every stored row is a row; so many there are.
    Rows(u64),
}

/// What all orders of a source derive from, beside the identity of a leg and the epoch.
#[derive(Debug, Clone, Copy)]
pub struct Keying {
    /// The recipe's.
    pub seed: u64,
    /// How far samples are moved.
    pub shuffle: Shuffle,
}

/// Rows and lengths of one leg, and their order in every epoch.
pub struct Leg {
    kind: LegKind,
    /// Identity of what it orders; part of every key.
    source: Digest,
    keying: Keying,
    /// Tokens of a row.
    length: u32,
    /// Where rows are crops: tokens at which one can begin, up to and including each block.
    begins: Vec<u64>,
    /// Tells legs apart in [`Kept`].
    number: u64,
}

/// What stands at an index of a leg.
pub enum Found {
    /// A stored row.
    Row(u64),
    /// A pack of a block.
    Pack {
        /// The block, with its packs.
        block: Arc<PlannedBlock>,
        /// Which of them.
        pack: u32,
    },
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Leg {
    /// A leg whose orders derive from `source`; `length` is the tokens of a row.
    pub fn new(kind: LegKind, source: Digest, keying: Keying, length: u32) -> Self {
        let begins = match &kind {
            LegKind::Packed { table, policy: Policy::Crop } => running_sum(&table.head().packs),
            LegKind::Packed { .. } | LegKind::Rows(_) => vec![],
        };
        Self { kind, source, keying, length, begins, number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Rows of one epoch.
    pub fn packs(&self) -> u64 {
        match &self.kind {
            LegKind::Packed { table, policy } => table.head().epoch_rows(*policy, self.length),
            LegKind::Rows(rows) => *rows,
        }
    }

    /// Whether its rows are crops, of which an epoch has some twice.
    pub fn is_cropped(&self) -> bool {
        !self.begins.is_empty()
    }

    /// Tokens of a row.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The plan table, where rows are packed.
    pub fn table(&self) -> Option<&Table> {
        match &self.kind {
            LegKind::Packed { table, .. } => Some(table),
            LegKind::Rows(_) => None,
        }
    }

    /// What stands at an index of the leg.
    pub fn find(&self, kept: &Kept, epoch: u64, within: u64) -> Result<Found, FeedError> {
        let lost =
            || FeedError::Plan { reason: format!("there is no index {within} in a leg of the source") };
        if self.is_cropped() {
            return if within < self.packs() { self.crop(kept, epoch, within) } else { Err(lost()) };
        }
        let order = kept.order((self.number, epoch), || self.order(epoch))?;
        match &order.order {
            Ordered::Rows(rows) => Ok(Found::Row(rows.locate(within).ok_or_else(lost)?)),
            Ordered::Packed(plan) => {
                let window = kept.window((self.number, epoch), within, || plan.window_at(within));
                let (number, pack) = window.and_then(|window| window.locate(within)).ok_or_else(lost)?;
                let block = kept.block((self.number, epoch), number, || self.planned(&order.key, number))?;
                Ok(Found::Pack { block, pack })
            }
        }
    }

    /// The crop that an index of an epoch draws. Blocks are the same in every epoch.
    fn crop(&self, kept: &Kept, epoch: u64, within: u64) -> Result<Found, FeedError> {
        let key = Key::epoch(self.keying.seed, &self.source, epoch);
        let tokens = self.table().map_or(0, |table| table.head().tokens);
        let at = crop_at(&key, self.keying.shuffle, within, tokens, self.length);
        let number = self.begins.partition_point(|end| *end <= at);
        let before = if number == 0 { 0 } else { self.begins[number - 1] };
        let block = kept.block((self.number, 0), number as u64, || self.planned(&key, number as u64))?;
        Ok(Found::Pack { block, pack: (at - before) as u32 })
    }

    /// Which packs of which blocks stand at the indexes from `from` on, in no order: for planning what is left of an epoch.
    pub(super) fn packs_from(&self, epoch: u64, from: u64) -> Result<Vec<(u64, u32)>, FeedError> {
        if self.is_cropped() {
            return Err(FeedError::Plan { reason: "crops leave nothing of an epoch over".into() });
        }
        let Ordered::Packed(plan) = self.order(epoch)?.order else {
            return Err(FeedError::Plan { reason: "rows that are not packed cannot be packed anew".into() });
        };
        let mut packs = Vec::new();
        let mut next = from;
        while let Some(window) = plan.window_at(next) {
            packs.extend((next..window.range().end).filter_map(|within| window.locate(within)));
            next = window.range().end;
        }
        Ok(packs)
    }

    /// A block with its packs in an epoch.
    pub(super) fn planned_in(&self, epoch: u64, block: u64) -> Result<PlannedBlock, FeedError> {
        self.planned(&Key::epoch(self.keying.seed, &self.source, epoch), block)
    }

    fn order(&self, epoch: u64) -> Result<LegOrder, FeedError> {
        let key = Key::epoch(self.keying.seed, &self.source, epoch);
        let order = match &self.kind {
            LegKind::Packed { table, .. } => {
                Ordered::Packed(EpochPlan::new(table.head().packs.clone(), &key, self.keying.shuffle)?)
            }
            LegKind::Rows(rows) => Ordered::Rows(RowOrder::new(*rows, &key, self.keying.shuffle)?),
        };
        Ok(LegOrder { key, order })
    }

    fn planned(&self, key: &Key, block: u64) -> Result<PlannedBlock, FeedError> {
        let LegKind::Packed { table, policy } = &self.kind else {
            return Err(FeedError::Plan { reason: "rows that are not packed have no blocks".into() });
        };
        let rows = table.block(block)?;
        let samples = rows.rows.len() as u64;
        let shuffled = match policy {
            Policy::Crop => Permutation::identity(samples),
            _ => in_block(key, self.keying.shuffle, block, samples),
        };
        let packs = Packs::new(&rows.lengths, shuffled, self.length, *policy)?;
        Ok(PlannedBlock { block: rows, packs })
    }
}

fn running_sum(counts: &[u32]) -> Vec<u64> {
    let add = |sum: &mut u64, &count: &u32| {
        *sum += u64::from(count);
        Some(*sum)
    };
    counts.iter().scan(0, add).collect()
}
