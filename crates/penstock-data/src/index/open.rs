//! Reading an index in place: a row is two loads, a block sum and a frame one search over the batch table.

use std::fs::File;
use std::path::Path;

use penstock_io::{BLOCK_BYTES, BlockSums, Digest, IoError, block_count};

use super::parse::{Batch, Values, le_u32, le_u64, parse};
use super::{BATCH_ROWS, IndexDocument, Layout};
use crate::DataError;

/// A stretch of bytes: of a shard, or of the stream it decompresses to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// One frame of a compressed shard: where it lies, and which part of the stream it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its number, from 0.
    pub(crate) number: u64,
    /// In the shard.
    pub(crate) packed: Span,
    /// In the decompressed stream.
    pub(crate) content: Span,
}

/// An open index. Cheap to share; all reads are in place and safe from any thread.
pub struct Index {
    /// The file; kept for as long as this lives.
    bytes: Bytes,
    /// What it says about the shard as a whole.
    document: IndexDocument,
    /// Batches with rows: row `i` is in batch `i / 65,536`.
    rows: Vec<Batch>,
    /// Batches with block sums, each with the number of its first block.
    blocks: Vec<(u64, Values)>,
    /// Batches with frames, each with the number of its first frame: compressed and decompressed starts.
    frames: Vec<(u64, Values, Values)>,
    /// Number of frames.
    frame_count: u64,
    /// Bytes of the decompressed stream; equal to the shard's where nothing is compressed.
    content_bytes: u64,
}

enum Bytes {
    Held(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Held(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl Index {
    /// Opens an index that is already in memory. With `expected`, bytes of another digest are refused.
    pub fn from_bytes(bytes: Vec<u8>, expected: Option<Digest>) -> Result<Self, DataError> {
        Self::open(Bytes::Held(bytes), expected)
    }

    /// Maps an index file. It is content-addressed and never written again, so a mapping is safe where a shard's is not.
    pub fn open_path(path: &Path, expected: Option<Digest>) -> Result<Self, DataError> {
        let failed = |error: std::io::Error| IoError::from_system(&path.display().to_string(), None, &error);
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() == 0 {
            return Err(DataError::index_damaged("it is empty"));
        }
        // SAFETY: an index is renamed into place whole and is immutable from then on: no writer changes it or cuts it.
        let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
        Self::open(Bytes::Mapped(bytes), expected)
    }

    fn open(bytes: Bytes, expected: Option<Digest>) -> Result<Self, DataError> {
        if let Some(expected) = expected {
            let found = Digest::of(&bytes);
            if found != expected {
                return Err(DataError::index_damaged(format!("expected digest {expected}, found {found}")));
            }
        }
        let parsed = parse(&bytes)?;
        let document = parsed.document;
        let (mut rows, mut blocks, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        let (mut row_count, mut block_total, mut frame_count) = (0, 0, 0);
        for batch in parsed.batches {
            if batch.block.count > 0 {
                blocks.push((block_total, batch.block));
                block_total += batch.block.count;
            }
            if batch.frame.count > 0 {
                frames.push((frame_count, batch.frame, batch.frame_start));
                frame_count += batch.frame.count;
            }
            if batch.offset.count > 0 {
                if row_count % BATCH_ROWS != 0 {
                    return Err(DataError::index_damaged(format!(
                        "a batch before row {row_count} is not full"
                    )));
                }
                row_count += batch.offset.count;
                rows.push(batch);
            }
        }
        check_counts(&document, row_count, block_total)?;
        let content_bytes = match document.layout {
            Layout::Frames => document.detail_u64("content_bytes").ok_or_else(|| {
                DataError::index_damaged("it has frames, but not the length of what they hold")
            })?,
            Layout::Ranges | Layout::Opaque => document.bytes,
        };
        Ok(Self { bytes, document, rows, blocks, frames, frame_count, content_bytes })
    }

    /// What the index says about the shard as a whole.
    pub fn document(&self) -> &IndexDocument {
        &self.document
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.document.rows
    }

    /// Length of the stream that row ranges lie in.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Where row `row` lies, or nothing where the index has no range for it.
    pub fn row(&self, row: u64) -> Option<Span> {
        let (batch, slot) = self.slot(row)?;
        let offset = self.u64_at(batch.offset, slot)?;
        let at = batch.length.at.checked_add(4 * slot as usize)?;
        Some(Span { offset, length: u64::from(le_u32(&self.bytes, at)?) })
    }

    /// The key of row `row`, where rows have keys.
    pub fn name(&self, row: u64) -> Option<&str> {
        let (batch, slot) = self.slot(row)?;
        let start = usize::try_from(self.u64_at(batch.name_cuts, slot)?).ok()?;
        let end = usize::try_from(self.u64_at(batch.name_cuts, slot + 1)?).ok()?;
        let names = self.bytes.get(batch.name_bytes.clone())?;
        std::str::from_utf8(names.get(start..end)?).ok()
    }

    /// Number of frames; zero where nothing is compressed.
    pub fn frame_count(&self) -> u64 {
        self.frame_count
    }

    /// The frame that holds byte `offset` of the decompressed stream.
    pub(crate) fn frame_of(&self, offset: u64) -> Option<Frame> {
        let batch = self
            .frames
            .partition_point(|(_, _, start)| self.u64_at(*start, 0).is_some_and(|at| at <= offset));
        let (first, _, starts) = self.frames.get(batch.checked_sub(1)?)?;
        let (mut low, mut high) = (0, starts.count);
        // Halves the range each turn: the last start at or before `offset` is in `low..high`.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.u64_at(*starts, middle)? <= offset { low = middle } else { high = middle }
        }
        self.frame(first + low).filter(|frame| offset - frame.content.offset < frame.content.length)
    }

    /// Frame `number`, with its ends: where the next one begins, or the end of the file.
    pub(crate) fn frame(&self, number: u64) -> Option<Frame> {
        let (packed, content) = self.frame_starts(number)?;
        let (packed_end, content_end) = match number + 1 {
            next if next < self.frame_count => self.frame_starts(next)?,
            _ => (self.document.bytes, self.content_bytes),
        };
        let packed = Span { offset: packed, length: packed_end.checked_sub(packed)? };
        let content = Span { offset: content, length: content_end.checked_sub(content)? };
        Some(Frame { number, packed, content })
    }

    fn frame_starts(&self, number: u64) -> Option<(u64, u64)> {
        let batch = self.frames.partition_point(|(first, _, _)| *first <= number);
        let (first, packed, content) = self.frames.get(batch.checked_sub(1)?)?;
        Some((self.u64_at(*packed, number - first)?, self.u64_at(*content, number - first)?))
    }

    fn slot(&self, row: u64) -> Option<(&Batch, u64)> {
        let batch = self.rows.get(usize::try_from(row / BATCH_ROWS).ok()?)?;
        let slot = row % BATCH_ROWS;
        (slot < batch.offset.count).then_some((batch, slot))
    }

    fn u64_at(&self, values: Values, slot: u64) -> Option<u64> {
        if slot >= values.count {
            return None;
        }
        le_u64(&self.bytes, values.at.checked_add(usize::try_from(slot).ok()?.checked_mul(8)?)?)
    }
}

impl BlockSums for Index {
    fn file_bytes(&self) -> u64 {
        self.document.bytes
    }

    fn sum(&self, block: u64) -> Option<u64> {
        let batch = self.blocks.partition_point(|(first, _)| *first <= block);
        let (first, values) = self.blocks.get(batch.checked_sub(1)?)?;
        self.u64_at(*values, block - first)
    }
}

fn check_counts(document: &IndexDocument, rows: u64, blocks: u64) -> Result<(), DataError> {
    if document.block_bytes != BLOCK_BYTES {
        return Err(DataError::index_damaged(format!(
            "blocks of {} bytes are unknown",
            document.block_bytes
        )));
    }
    if blocks != block_count(document.bytes) {
        let reason = format!(
            "{} bytes need {} block sums, found {blocks}",
            document.bytes,
            block_count(document.bytes)
        );
        return Err(DataError::index_damaged(reason));
    }
    if document.layout != Layout::Opaque && rows != document.rows {
        let reason = format!("its document says {} rows, its columns have {rows}", document.rows);
        return Err(DataError::index_damaged(reason));
    }
    document.digest.parse::<Digest>().map_err(|error| DataError::index_damaged(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
