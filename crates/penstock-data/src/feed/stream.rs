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

#[cfg(test)]
mod tests {
    use penstock_io::LocalFile;

    use super::super::build::{Packing, build_table};
    use super::super::tokens::tests::{documents, fixed_rows};
    use super::*;
    use crate::plan::Permutation;

    const LENGTH: u32 = 16;

    /// Bytes, and (sample, first token, tokens) of each document in them.
    type Row = (Vec<u8>, Vec<(u64, u32, u32)>);

    /// Documents of 0 to 18 tokens of two bytes; a line of one byte has none.
    fn lines(count: usize) -> Vec<String> {
        let line = |n: usize| if n % 7 == 0 { ".".to_owned() } else { format!("{n:05}.").repeat(n * n % 7) };
        (0..count).map(line).collect()
    }

    fn packed(lines: &[String], policy: Policy, shuffle: Shuffle) -> SourceStream {
        let tokens = documents(lines, 2);
        let (dir, source) = (tempfile::tempdir().unwrap(), Digest::of(b"web"));
        let kept: Vec<u8> = (0..lines.len()).map(|row| u8::from(row % 11 != 3)).collect();
        let packing = Packing { length: LENGTH, policy, shuffle, source: &source };
        let path = dir.path().join("table");
        build_table(&path, &tokens.lengths().unwrap(), Some(&kept), packing).unwrap();
        let table = Table::open(Arc::new(LocalFile::open(&path).unwrap())).unwrap();
        SourceStream::new(tokens, StreamKind::Packed { table, policy }, source, 5, shuffle, LENGTH).unwrap()
    }

    /// A row as the stream fills it.
    fn filled(stream: &SourceStream, index: u64) -> Row {
        let (mut into, mut origins) = (vec![255; LENGTH as usize * 2], vec![]);
        stream.fill(index, &mut into, &mut origins).unwrap();
        let parts = origins.iter().map(|origin| (origin.sample, origin.start, origin.length)).collect();
        assert!(origins.iter().all(|origin| origin.epoch == index / stream.per_epoch()));
        (into, parts)
    }

    /// One epoch, the slow way: all documents of each block end to end, cut, and put where the epoch's order says.
    fn naive(stream: &SourceStream, lines: &[String], epoch: u64) -> Vec<Row> {
        let StreamKind::Packed { table, .. } = &stream.kind else { unreachable!() };
        let key = Key::epoch(stream.seed, &stream.source, epoch);
        let mut packs: Vec<Vec<Row>> = vec![];
        for block in 0..table.head().samples.len() as u64 {
            let rows = table.block(block).unwrap().rows;
            let order = in_block(&key, stream.shuffle, block, rows.len() as u64);
            let mut tokens: Vec<(u64, u32, [u8; 2])> = vec![];
            for row in order.iter().map(|place| rows[place as usize]) {
                let bytes = lines[row as usize].as_bytes();
                tokens.extend(
                    bytes
                        .chunks_exact(2)
                        .enumerate()
                        .map(|(at, token)| (row, at as u32, [token[0], token[1]])),
                );
            }
            packs.push(tokens.chunks(LENGTH as usize).map(naive_row).collect());
        }
        let counts: Vec<u32> = packs.iter().map(|packs| packs.len() as u32).collect();
        let plan = EpochPlan::new(counts, &key, stream.shuffle).unwrap();
        let places = (0..plan.packs()).map(|index| plan.locate(index).unwrap());
        places.map(|(block, pack)| packs[block as usize][pack as usize].clone()).collect()
    }

    fn naive_row(tokens: &[(u64, u32, [u8; 2])]) -> Row {
        let mut bytes: Vec<u8> = tokens.iter().flat_map(|(_, _, token)| *token).collect();
        bytes.resize(LENGTH as usize * 2, 0);
        let mut parts: Vec<(u64, u32, u32)> = vec![];
        for &(row, at, _) in tokens {
            match parts.last_mut() {
                Some((last, _, count)) if *last == row => *count += 1,
                _ => parts.push((row, at, 1)),
            }
        }
        (bytes, parts)
    }

    /// Goal: caches and random access change nothing. Method: three epochs of three blocks, in a scattered order, against the
    /// slow way.
    #[test]
    fn rows_are_those_of_the_slow_way() {
        let lines = lines(14_000);
        for shuffle in [Shuffle::Full, Shuffle::Local, Shuffle::None] {
            let stream = packed(&lines, Policy::Concat, shuffle);
            let StreamKind::Packed { table, .. } = &stream.kind else { unreachable!() };
            assert_eq!(table.head().samples.len(), 3);
            let expected: Vec<_> = (0..3).flat_map(|epoch| naive(&stream, &lines, epoch)).collect();
            assert_eq!(expected.len() as u64, 3 * stream.per_epoch());
            let scattered = Permutation::new(&Key::of("scattered", &[]), expected.len() as u64);
            for index in scattered.iter() {
                assert_eq!(filled(&stream, index), expected[index as usize], "{shuffle:?} {index}");
            }
        }
    }

    #[test]
    fn every_token_that_is_kept_comes_once_an_epoch_whatever_the_policy() {
        let lines = lines(5_000);
        for policy in [Policy::Concat, Policy::Fit] {
            let stream = packed(&lines, policy, Shuffle::Full);
            for epoch in 0..2 {
                let range = epoch * stream.per_epoch()..(epoch + 1) * stream.per_epoch();
                let mut parts: Vec<_> = range.flat_map(|index| filled(&stream, index).1).collect();
                parts.sort_unstable();
                let mut next = (0, 0);
                for (sample, start, length) in parts {
                    if sample != next.0 {
                        assert_eq!(
                            next.1 as usize,
                            lines[next.0 as usize].len() / 2 * usize::from(next.0 % 11 != 3)
                        );
                        let between = next.0 + 1..sample;
                        assert!(between.clone().all(|row| row % 11 == 3 || lines[row as usize].len() < 2));
                        next = (sample, 0);
                    }
                    assert_eq!(start, next.1, "{policy:?} {sample}");
                    next.1 += length;
                }
            }
        }
    }

    #[test]
    fn threads_that_share_a_stream_get_the_same_rows() {
        let lines = lines(9_000);
        let stream = packed(&lines, Policy::Fit, Shuffle::Full);
        let alone: Vec<_> = (0..stream.per_epoch()).map(|index| filled(&stream, index)).collect();
        let shared = packed(&lines, Policy::Fit, Shuffle::Full);
        std::thread::scope(|scope| {
            for first in 0..4_u64 {
                let (shared, alone) = (&shared, &alone);
                scope.spawn(move || {
                    for index in (first..shared.per_epoch()).step_by(4) {
                        assert_eq!(filled(shared, index), alone[index as usize]);
                    }
                });
            }
        });
    }

    #[test]
    fn fixed_rows_are_rows() {
        let lines: Vec<String> = (0..50).map(|n| format!("{n:031}")).collect();
        for shuffle in [Shuffle::Full, Shuffle::Local, Shuffle::None] {
            let tokens = fixed_rows(&lines, 2);
            let stream =
                SourceStream::new(tokens, StreamKind::Rows, Digest::of(b"rows"), 5, shuffle, LENGTH).unwrap();
            let mut seen: Vec<u64> = vec![];
            for index in 50..100 {
                let (bytes, parts) = filled(&stream, index);
                assert_eq!(bytes, format!("{}\n", lines[parts[0].0 as usize]).as_bytes());
                assert_eq!(parts[1..], []);
                seen.push(parts[0].0);
            }
            assert_eq!(seen.is_sorted(), shuffle == Shuffle::None);
            seen.sort_unstable();
            assert_eq!(seen, (0..50).collect::<Vec<u64>>());
        }
    }
}
