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
use crate::plan::{EpochPlan, Key, Packs, Policy, RowOrder, Shuffle, in_block};

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

/// See the module's description.
pub struct Leg {
    kind: LegKind,
    /// Identity of what it orders; part of every key.
    source: Digest,
    keying: Keying,
    /// Tokens of a row.
    length: u32,
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
        Self { kind, source, keying, length, number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Rows of one epoch.
    pub fn packs(&self) -> u64 {
        match &self.kind {
            LegKind::Packed { table, .. } => table.head().pack_count(),
            LegKind::Rows(rows) => *rows,
        }
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

    /// Which packs of which blocks stand at the indexes from `from` on, in no order: for planning what is left of an epoch.
    pub(super) fn packs_from(&self, epoch: u64, from: u64) -> Result<Vec<(u64, u32)>, FeedError> {
        let Ordered::Packed(plan) = self.order(epoch)?.order else {
            return Err(FeedError::Plan { reason: "rows that are not packed cannot be packed anew".into() });
        };
        let mut found = Vec::new();
        let mut next = from;
        while let Some(window) = plan.window_at(next) {
            found.extend((next..window.range().end).filter_map(|within| window.locate(within)));
            next = window.range().end;
        }
        Ok(found)
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
        let shuffled = in_block(key, self.keying.shuffle, block, rows.rows.len() as u64);
        let packs = Packs::new(&rows.lengths, shuffled, self.length, *policy)?;
        Ok(PlannedBlock { block: rows, packs })
    }
}
