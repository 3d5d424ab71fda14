//! Reading many rows at once: the caller's order outside, the file's order inside.
//!
//! Every row gets its own slice of one result buffer; the slices are then sorted by where their rows lie, so that
//! neighbours share a read, a block check and a frame, and dealt to threads in contiguous runs. No slice belongs to two
//! threads, so order is kept without any lock.

use std::ops::Range;
use std::thread;

use penstock_io::ReaderStep;

use crate::DataError;
use crate::frame_cache::Frames;
use crate::index::Layout;
use crate::shard::{Shard, no_thread, thread_count};

/// Rows below which a second thread costs more than it brings, unless they are large.
const THREAD_ROWS_MIN: usize = 512;
/// Bytes from which a second thread pays however few the rows.
const THREAD_BYTES_MIN: usize = 1 << 20;
/// Bytes between two rows that are rather read along than skipped by another system call.
const GAP_BYTES_MAX: u64 = 4_096;
/// Bytes of rows that share one read.
const RUN_BYTES_MAX: u64 = 256 << 10;

/// Bytes between two rows of a far file that are not worth telling apart.
const NEAR_BYTES: u64 = 64 << 10;

/// Rows, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    /// The bytes of all rows, in the order asked for.
    pub bytes: Vec<u8>,
    /// Where each row ends in `bytes`; it begins where the one before ends.
    pub ends: Vec<u64>,
}

impl Gathered {
    /// The rows, in the order asked for.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[*start as usize..*end as usize])
    }
}

/// A row to read, and where to put it.
struct Slot<'a> {
    /// First byte, in the stream that ranges lie in.
    offset: u64,
    into: &'a mut [u8],
}

impl Slot<'_> {
    fn end(&self) -> u64 {
        self.offset + self.into.len() as u64
    }
}

pub(crate) fn gather(shard: &Shard, rows: &[u64], threads: usize) -> Result<Gathered, DataError> {
    let mut offsets = Vec::with_capacity(rows.len());
    let mut ends = Vec::with_capacity(rows.len());
    let mut total = 0_u64;
    for row in rows {
        let span = shard.span(*row)?;
        offsets.push(span.offset);
        total = total.saturating_add(span.length);
        ends.push(total);
    }
    let mut bytes = room(shard, total)?;
    let mut slots = cut(&mut bytes, &offsets, &ends);
    if !slots.is_sorted_by_key(|slot| slot.offset) {
        slots.sort_unstable_by_key(|slot| slot.offset);
    }
    announce(shard, &slots);
    let useful = (rows.len() / THREAD_ROWS_MIN).max(total as usize / THREAD_BYTES_MIN).max(1);
    deal(shard, &mut slots, thread_count(threads).min(useful).min(rows.len().max(1)))?;
    Ok(Gathered { bytes, ends })
}

/// Tells a file that is far away what will be read of it, so that it comes in few requests and all at once.
fn announce(shard: &Shard, slots: &[Slot<'_>]) {
    if !shard.file.is_far() {
        return;
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let frames = shard.index.document().layout == Layout::Frames;
    for slot in slots {
        if !frames {
            // Slots are in order; whoever is far away fetches in parts that are larger than such a gap.
            match ranges.last_mut() {
                Some(last) if slot.offset < last.end.saturating_add(NEAR_BYTES) => {
                    last.end = last.end.max(slot.end());
                }
                _ => ranges.push(slot.offset..slot.end()),
            }
            continue;
        }
        let mut at = slot.offset;
        // Each turn passes a whole frame, and a frame has at least one byte.
        while let Some(frame) = shard.index.frame_of(at).filter(|_| at < slot.end()) {
            ranges.push(frame.packed.offset..frame.packed.offset + frame.packed.length);
            at = frame.content.offset + frame.content.length.max(1);
        }
    }
    shard.file.will_need(&ranges);
}

/// A buffer for `total` bytes, or a typed error where the allocator would end the process.
fn room(shard: &Shard, total: u64) -> Result<Vec<u8>, DataError> {
    let too_much = || DataError::TooMuch { shard: shard.name().to_owned(), bytes: total };
    let bytes = usize::try_from(total).map_err(|_| too_much())?;
    // Asking first and then taking zeroed memory lets the system hand out pages without writing them.
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| too_much())?;
    Ok(vec![0; bytes])
}

fn cut<'a>(mut bytes: &'a mut [u8], offsets: &[u64], ends: &[u64]) -> Vec<Slot<'a>> {
    let mut slots = Vec::with_capacity(offsets.len());
    let mut start = 0;
    for (offset, end) in offsets.iter().zip(ends) {
        let (into, rest) = std::mem::take(&mut bytes).split_at_mut((end - start) as usize);
        slots.push(Slot { offset: *offset, into });
        (bytes, start) = (rest, *end);
    }
    slots
}

/// Deals sorted slots to threads, the last share to the calling one.
fn deal(shard: &Shard, slots: &mut [Slot<'_>], threads: usize) -> Result<(), DataError> {
    if threads <= 1 {
        return read_sorted(shard, slots);
    }
    let step = ReaderStep::current();
    thread::scope(|scope| {
        let mut rest = slots;
        let mut running = Vec::with_capacity(threads);
        for number in 0..threads - 1 {
            let share = boundary(shard, rest, rest.len() / (threads - number));
            let (mine, others) = std::mem::take(&mut rest).split_at_mut(share);
            rest = others;
            let thread = thread::Builder::new().name(format!("penstock-gather-{number}"));
            let spawned = thread.spawn_scoped(scope, move || {
                let _reader = ReaderStep::enter_same(step);
                read_sorted(shard, mine)
            });
            running.push(spawned.map_err(|error| no_thread(shard.name(), &error))?);
        }
        let last = read_sorted(shard, rest);
        // Shares are in file order, so the error that is returned does not depend on which thread was faster.
        for thread in running {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        last
    })
}

/// The number of slots near `wanted` after which a new frame begins, so that no frame is decompressed by two threads.
fn boundary(shard: &Shard, slots: &[Slot<'_>], wanted: usize) -> usize {
    if shard.index.document().layout != Layout::Frames || wanted == 0 {
        return wanted;
    }
    match shard.index.frame_of(slots[wanted - 1].offset) {
        Some(frame) => {
            let frame_end = frame.content.offset + frame.content.length;
            slots.partition_point(|slot| slot.offset < frame_end)
        }
        None => wanted,
    }
}

fn read_sorted(shard: &Shard, slots: &mut [Slot<'_>]) -> Result<(), DataError> {
    if shard.index.document().layout == Layout::Frames {
        let mut frames = Frames::new(shard)?;
        return slots.iter_mut().try_for_each(|slot| frames.read_into(slot.offset, slot.into));
    }
    let mut scratch = Vec::new();
    let mut rest = slots;
    // Each turn reads at least one row.
    while !rest.is_empty() {
        let count = run_length(rest);
        let (run, others) = std::mem::take(&mut rest).split_at_mut(count);
        rest = others;
        read_run(shard, run, &mut scratch)?;
    }
    Ok(())
}

/// How many of the first slots lie so close together that one read serves them all; at least one.
fn run_length(slots: &[Slot<'_>]) -> usize {
    let start = slots[0].offset;
    let mut end = slots[0].end();
    let close = |slot: &&Slot<'_>| {
        let near =
            slot.offset <= end.saturating_add(GAP_BYTES_MAX) && slot.end().max(end) - start <= RUN_BYTES_MAX;
        end = end.max(slot.end());
        near
    };
    1 + slots[1..].iter().take_while(close).count()
}

/// Reads neighbouring rows at once, or a lone one straight into its place.
fn read_run(shard: &Shard, run: &mut [Slot<'_>], scratch: &mut Vec<u8>) -> Result<(), DataError> {
    if let [slot] = run {
        return Ok(shard.file.read_into(slot.offset, slot.into)?);
    }
    let start = run.iter().map(|slot| slot.offset).min().unwrap_or(0);
    let end = run.iter().map(Slot::end).max().unwrap_or(0);
    scratch.resize((end - start) as usize, 0);
    shard.file.read_into(start, scratch)?;
    for slot in run {
        let from = (slot.offset - start) as usize;
        slot.into.copy_from_slice(&scratch[from..from + slot.into.len()]);
    }
    Ok(())
}
