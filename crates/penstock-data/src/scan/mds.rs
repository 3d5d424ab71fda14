//! MDS samples, looked at while the bytes of their shard pass by on their way to the sums.
//!
//! Nothing is decoded and nothing is refused here. A sample either certainly decodes, or it is doubtful, and the decoder
//! itself (`formats/samples/mds_columns.py`) is asked about it afterwards. The checks may therefore be narrower than the decoder,
//! which costs time, but never wider, which would register samples that cannot be read.

use std::io::{self, Read};

mod column;

pub use column::MdsColumn;
use column::le_u32;

/// Bytes of memory that are kept for the next sample that comes in several pieces.
const CARRIED_BYTES_KEPT: usize = 1 << 20;

/// Where the samples of a shard are, and what they are made of.
#[derive(Debug, Clone, Copy)]
pub struct MdsSamples<'a> {
    /// First byte of each sample, in order.
    pub offsets: &'a [u64],
    /// Bytes of each sample.
    pub lengths: &'a [u32],
    /// Columns of every sample, in order.
    pub columns: &'a [MdsColumn],
    /// Samples with more bytes have no row and are passed over.
    pub row_bytes_max: u32,
}

/// Hands on what `input` gives, and remembers which of the samples in it are doubtful.
pub struct MdsCheck<'a, R> {
    input: R,
    samples: MdsSamples<'a>,
    /// Bytes at the beginning of a sample that hold the sizes of its varying columns.
    head_bytes: usize,
    /// Bytes of the head and all fixed columns.
    fixed_bytes: u64,
    /// Whether there is more to a sample than its sizes.
    inspected: bool,
    /// Bytes of the input handed on so far.
    at: u64,
    /// The first sample that is not judged yet.
    next: usize,
    /// The beginning of that sample, where it came in an earlier piece.
    carried: Vec<u8>,
    /// Rows so far, which is samples without those that are too large.
    rows: u64,
    /// Numbers of doubtful rows, rising.
    doubtful: Vec<u64>,
}

impl<'a, R: Read> MdsCheck<'a, R> {
    /// Will look at `samples` as `input`, the whole shard, is read through it.
    pub fn new(input: R, samples: MdsSamples<'a>) -> Self {
        let head_bytes = 4 * samples.columns.iter().filter(|column| column.bytes().is_none()).count();
        let fixed_bytes = samples.columns.iter().filter_map(MdsColumn::bytes).map(u64::from).sum::<u64>();
        Self {
            input,
            samples,
            head_bytes,
            fixed_bytes: head_bytes as u64 + fixed_bytes,
            inspected: samples.columns.iter().any(MdsColumn::is_inspected),
            at: 0,
            next: 0,
            carried: Vec::new(),
            rows: 0,
            doubtful: Vec::new(),
        }
    }

    /// The rows that may not decode, rising. Samples that did not come whole are among them.
    pub fn finish(mut self) -> Vec<u64> {
        while self.place().is_some() {
            self.judged(false);
        }
        self.doubtful
    }

    /// Takes the next bytes of the shard.
    fn pass(&mut self, piece: &[u8]) {
        let piece_end = self.at + piece.len() as u64;
        // Each turn judges a sample or ends the loop.
        while let Some((start, length)) = self.place() {
            // Where the sizes are all there is to see, large samples are not carried for the rest of them.
            let seen_bytes =
                if self.inspected { length as usize } else { self.head_bytes.min(length as usize) };
            let end = start.saturating_add(seen_bytes as u64);
            if start.saturating_add(self.carried.len() as u64) < self.at {
                // It begins before the end of the last one.
                self.judged(false);
                continue;
            }
            if end > piece_end {
                if start < piece_end {
                    self.carry(&piece[(start.max(self.at) - self.at) as usize..], seen_bytes);
                }
                break;
            }
            let certain = if self.carried.is_empty() {
                self.is_certain(&piece[(start - self.at) as usize..(end - self.at) as usize], length)
            } else {
                self.carry(&piece[..(end - self.at) as usize], seen_bytes);
                self.is_certain(&self.carried, length)
            };
            self.judged(certain);
        }
        self.at = piece_end;
    }

    /// First byte and length of the next sample to be judged.
    fn place(&mut self) -> Option<(u64, u32)> {
        // Each turn passes over a sample.
        loop {
            let length = *self.samples.lengths.get(self.next)?;
            if length <= self.samples.row_bytes_max {
                return Some((*self.samples.offsets.get(self.next)?, length));
            }
            self.next += 1;
        }
    }

    /// Keeps a part of the next sample, of which `seen_bytes` will be kept in all.
    fn carry(&mut self, part: &[u8], seen_bytes: usize) {
        self.carried.reserve_exact(seen_bytes.saturating_sub(self.carried.len()).max(part.len()));
        self.carried.extend_from_slice(part);
    }

    fn judged(&mut self, certain: bool) {
        if !certain {
            self.doubtful.push(self.rows);
        }
        self.rows += 1;
        self.next += 1;
        self.carried.clear();
        self.carried.shrink_to(CARRIED_BYTES_KEPT);
    }

    /// Whether a sample of `length` bytes decodes, of which `seen` are the first, or all where columns are inspected.
    fn is_certain(&self, seen: &[u8], length: u32) -> bool {
        let Some((head, _)) = seen.split_at_checked(self.head_bytes) else { return false };
        let sizes = || head.chunks_exact(4).map(|size| le_u32(size).unwrap_or(0));
        if self.fixed_bytes + sizes().map(u64::from).sum::<u64>() != u64::from(length) {
            return false;
        }
        if !self.inspected {
            return true;
        }
        let mut sizes = sizes();
        let mut rest = &seen[self.head_bytes..];
        self.samples.columns.iter().all(|column| {
            let bytes = column.bytes().or_else(|| sizes.next()).unwrap_or(0);
            let Some((data, others)) = rest.split_at_checked(bytes as usize) else { return false };
            rest = others;
            column.holds(data)
        })
    }
}

impl<R: Read> Read for MdsCheck<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        self.pass(&into[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
