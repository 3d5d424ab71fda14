//! One source as an endless stream of rows: what stands at an index, found without reading what comes before it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_io::Digest;

use super::FeedError;
use super::batch::Origin;
use super::table::{BlockRows, Table};
use super::tokens::TokenSource;
use crate::plan::{EpochPlan, Key, Packs, Policy, RowOrder, Shuffle, Span, Window, epoch_of, in_block};

/// Epochs whose order is kept; two, because batches around an epoch's end are made at the same time.
const EPOCHS_KEPT: usize = 2;
/// Windows whose order is kept.
const WINDOWS_KEPT: usize = 4;
/// Memory for planned blocks: a window of 256 blocks of 4,096 documents fits.
const PACKED_BYTES_MAX: usize = 32 << 20;

/// What a source's rows are made of.
pub enum StreamKind {
    /// Documents, packed.
    Packed {
        /// Which samples make up each block.
        table: Table,
        /// How they are joined.
        policy: Policy,
    },
    /// Every stored row is a row.
    Rows,
}

/// See the module's description.
pub struct SourceStream {
    tokens: TokenSource,
    kind: StreamKind,
    /// Identity of the version; part of every key.
    source: Digest,
    seed: u64,
    shuffle: Shuffle,
    /// Tokens of a row.
    length: u32,
    epochs: Mutex<VecDeque<(u64, Arc<EpochOrder>)>>,
    windows: Mutex<VecDeque<(u64, Arc<Window>)>>,
    planned: Mutex<Planned>,
}

/// The order of one epoch.
struct EpochOrder {
    key: Key,
    order: Ordered,
}

enum Ordered {
    Packed(EpochPlan<Vec<u32>>),
    Rows(RowOrder),
}

/// A block with its packs in one epoch.
struct PlannedBlock {
    block: BlockRows,
    packs: Packs,
}

/// Planned blocks by epoch and block, oldest first out.
#[derive(Default)]
struct Planned {
    blocks: HashMap<(u64, u64), Arc<PlannedBlock>>,
    order: VecDeque<((u64, u64), usize)>,
    bytes: usize,
}

impl SourceStream {
    /// A stream over `tokens`; `length` is the tokens of a row.
    pub fn new(
        tokens: TokenSource,
        kind: StreamKind,
        source: Digest,
        seed: u64,
        shuffle: Shuffle,
        length: u32,
    ) -> Result<Self, FeedError> {
        let stream = Self {
            tokens,
            kind,
            source,
            seed,
            shuffle,
            length,
            epochs: Mutex::default(),
            windows: Mutex::default(),
            planned: Mutex::default(),
        };
        if stream.per_epoch() == 0 {
            return Err(FeedError::Plan { reason: "a source has no rows".into() });
        }
        Ok(stream)
    }

    /// Rows of one epoch.
    pub fn per_epoch(&self) -> u64 {
        match &self.kind {
            StreamKind::Packed { table, .. } => {
                table.head().packs.iter().map(|&packs| u64::from(packs)).sum()
            }
            StreamKind::Rows => self.tokens.rows(),
        }
    }

    /// Bytes of a stored token.
    pub fn item_bytes(&self) -> usize {
        self.tokens.item_bytes()
    }

    /// Fills `into` (in stored tokens) with the row at `index` and appends what it is made of; padding is zeroed.
    pub fn fill(&self, index: u64, into: &mut [u8], origins: &mut Vec<Origin>) -> Result<(), FeedError> {
        let lost = || FeedError::Plan { reason: format!("there is no index {index} in the source") };
        let (epoch, within) = epoch_of(index, self.per_epoch()).ok_or_else(lost)?;
        let order = self.epoch(epoch)?;
        match &order.order {
            Ordered::Rows(rows) => {
                let row = rows.locate(within).ok_or_else(lost)?;
                self.tokens.read(row, 0, into)?;
                origins.push(Origin {
                    row: 0,
                    at: 0,
                    length: self.length,
                    source: 0,
                    sample: row,
                    start: 0,
                    epoch,
                });
                Ok(())
            }
            Ordered::Packed(plan) => {
                let (block, pack) = self.locate(plan, epoch, index, within).ok_or_else(lost)?;
                let planned = self.planned(epoch, &order, block)?;
                let mut spans = Vec::with_capacity(16);
                planned.packs.spans(pack, &planned.block.lengths, &mut spans)?;
                self.read_spans(&planned.block, &spans, into, epoch, origins)
            }
        }
    }

    fn read_spans(
        &self,
        block: &BlockRows,
        spans: &[Span],
        into: &mut [u8],
        epoch: u64,
        origins: &mut Vec<Origin>,
    ) -> Result<(), FeedError> {
        let item = self.item_bytes();
        let mut used = 0;
        for span in spans {
            let row = block.rows[span.sample as usize];
            let range = span.at as usize * item..(span.at + span.length) as usize * item;
            used = range.end;
            self.tokens.read(row, span.start, &mut into[range])?;
            let (at, length, start) = (span.at, span.length, span.start);
            origins.push(Origin { row: 0, at, length, source: 0, sample: row, start, epoch });
        }
        into[used..].fill(0);
        Ok(())
    }

    fn locate(&self, plan: &EpochPlan<Vec<u32>>, epoch: u64, index: u64, within: u64) -> Option<(u64, u32)> {
        let first = index - within;
        let kept = hold(&self.windows)
            .iter()
            .find(|(of, window)| *of == epoch && window.range().contains(&within))
            .map(|(_, window)| Arc::clone(window));
        let window = match kept {
            Some(window) => window,
            None => {
                let window = Arc::new(plan.window_at(within)?);
                let mut windows = hold(&self.windows);
                windows.push_back((epoch, Arc::clone(&window)));
                if windows.len() > WINDOWS_KEPT {
                    windows.pop_front();
                }
                window
            }
        };
        debug_assert!(first.checked_rem(self.per_epoch()) == Some(0));
        window.locate(within)
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<EpochOrder>, FeedError> {
        // Held while the order is made: others need the same one and would only make it again.
        let mut epochs = hold(&self.epochs);
        if let Some((_, order)) = epochs.iter().find(|(number, _)| *number == epoch) {
            return Ok(Arc::clone(order));
        }
        let key = Key::epoch(self.seed, &self.source, epoch);
        let order = match &self.kind {
            StreamKind::Packed { table, .. } => {
                Ordered::Packed(EpochPlan::new(table.head().packs.clone(), &key, self.shuffle)?)
            }
            StreamKind::Rows => Ordered::Rows(RowOrder::new(self.tokens.rows(), &key, self.shuffle)?),
        };
        let made = Arc::new(EpochOrder { key, order });
        epochs.push_back((epoch, Arc::clone(&made)));
        if epochs.len() > EPOCHS_KEPT {
            epochs.pop_front();
        }
        Ok(made)
    }

    fn planned(&self, epoch: u64, order: &EpochOrder, block: u64) -> Result<Arc<PlannedBlock>, FeedError> {
        if let Some(found) = hold(&self.planned).blocks.get(&(epoch, block)) {
            return Ok(Arc::clone(found));
        }
        let StreamKind::Packed { table, policy } = &self.kind else {
            return Err(FeedError::Plan { reason: "rows that are not packed have no blocks".into() });
        };
        let rows = table.block(block)?;
        let shuffled = in_block(&order.key, self.shuffle, block, rows.rows.len() as u64);
        let packs = Packs::new(&rows.lengths, shuffled, self.length, *policy)?;
        // Rows and lengths (12 bytes), the order (up to 4) and the beginnings of packs or pieces (8).
        let bytes = rows.rows.len() * 24 + packs.count() as usize * 8;
        let made = Arc::new(PlannedBlock { block: rows, packs });
        let mut planned = hold(&self.planned);
        if planned.blocks.insert((epoch, block), Arc::clone(&made)).is_none() {
            planned.order.push_back(((epoch, block), bytes));
            planned.bytes += bytes;
        }
        while planned.bytes > PACKED_BYTES_MAX && planned.order.len() > 1 {
            if let Some((key, bytes)) = planned.order.pop_front() {
                planned.blocks.remove(&key);
                planned.bytes -= bytes;
            }
        }
        Ok(made)
    }
}

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
