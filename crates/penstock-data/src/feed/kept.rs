//! What the legs of a source worked out and may need again: orders of epochs, windows, and planned blocks.
//!
//! One for all legs of a source, because only the legs around the current index are in use: a source of a thousand parts
//! must not keep a thousand times as much. Everything here can be worked out again, so it changes speed only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::FeedError;
use super::table::BlockRows;
use crate::plan::{EpochPlan, Key, Packs, RowOrder, Window};

/// Orders that are kept; a few, because batches around the end of a leg are made at the same time.
const ORDERS_KEPT: usize = 3;
/// Windows whose order is kept.
const WINDOWS_KEPT: usize = 4;
/// Memory for planned blocks: a window of 256 blocks of 4,096 documents fits.
const PLANNED_BYTES_MAX: usize = 32 << 20;

/// A leg in an epoch.
pub(super) type LegEpoch = (u64, u64);

/// The order of one leg in one epoch.
pub(super) struct LegOrder {
    pub(super) key: Key,
    pub(super) order: Ordered,
}

pub(super) enum Ordered {
    Packed(EpochPlan<Vec<u32>>),
    Rows(RowOrder),
}

/// A block with its packs in one epoch.
pub struct PlannedBlock {
    /// Its samples.
    pub block: BlockRows,
    /// How they are joined.
    pub packs: Packs,
}

impl PlannedBlock {
    /// Rows, lengths and starts (16 bytes), the order (up to 4) and the beginnings of packs or pieces.
    fn bytes(&self) -> usize {
        self.block.rows.len() * 20 + self.packs.bytes()
    }
}

/// Planned blocks by leg, epoch and block, oldest first out.
#[derive(Default)]
struct Planned {
    blocks: HashMap<(LegEpoch, u64), Arc<PlannedBlock>>,
    order: VecDeque<(LegEpoch, u64)>,
    bytes: usize,
}

/// Orders, windows and blocks that the legs of one source share.
#[derive(Default)]
pub struct Kept {
    orders: Mutex<VecDeque<(LegEpoch, Arc<LegOrder>)>>,
    windows: Mutex<VecDeque<(LegEpoch, Arc<Window>)>>,
    planned: Mutex<Planned>,
}

impl Kept {
    /// The order of a leg in an epoch.
    pub(super) fn order(
        &self,
        of: LegEpoch,
        make: impl FnOnce() -> Result<LegOrder, FeedError>,
    ) -> Result<Arc<LegOrder>, FeedError> {
        // Held while the order is made: others need the same one and would only make it again.
        let mut orders = hold(&self.orders);
        if let Some((_, order)) = orders.iter().find(|(known, _)| *known == of) {
            return Ok(Arc::clone(order));
        }
        let new_order = Arc::new(make()?);
        push(&mut orders, (of, Arc::clone(&new_order)), ORDERS_KEPT);
        Ok(new_order)
    }

    /// The window of a leg's order that holds an index of it.
    pub(super) fn window(
        &self,
        of: LegEpoch,
        within: u64,
        make: impl FnOnce() -> Option<Window>,
    ) -> Option<Arc<Window>> {
        let holds =
            |(known, window): &&(LegEpoch, Arc<Window>)| *known == of && window.range().contains(&within);
        if let Some((_, window)) = hold(&self.windows).iter().find(holds) {
            return Some(Arc::clone(window));
        }
        let new_window = Arc::new(make()?);
        push(&mut hold(&self.windows), (of, Arc::clone(&new_window)), WINDOWS_KEPT);
        Some(new_window)
    }

    /// A planned block of a leg.
    pub(super) fn block(
        &self,
        of: LegEpoch,
        block: u64,
        make: impl FnOnce() -> Result<PlannedBlock, FeedError>,
    ) -> Result<Arc<PlannedBlock>, FeedError> {
        if let Some(known) = hold(&self.planned).blocks.get(&(of, block)) {
            return Ok(Arc::clone(known));
        }
        let new_block = Arc::new(make()?);
        let mut planned = hold(&self.planned);
        if planned.blocks.insert((of, block), Arc::clone(&new_block)).is_none() {
            planned.order.push_back((of, block));
            planned.bytes += new_block.bytes();
        }
        while planned.bytes > PLANNED_BYTES_MAX && planned.order.len() > 1 {
            let oldest = planned.order.pop_front();
            if let Some(gone) = oldest.and_then(|oldest| planned.blocks.remove(&oldest)) {
                planned.bytes -= gone.bytes();
            }
        }
        Ok(new_block)
    }
}

fn push<T>(kept: &mut VecDeque<T>, item: T, most: usize) {
    kept.push_back(item);
    if kept.len() > most {
        kept.pop_front();
    }
}

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
