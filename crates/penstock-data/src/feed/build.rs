//! Building a plan table: the only work that looks at every sample, done once per version, filter, length and policy.

use std::path::Path;

use penstock_io::Digest;

use super::FeedError;
use super::table::{BlockRows, TableHead, TableWriter};
use crate::plan::{Blocks, Policy, Shuffle, crop_blocks, crop_rows, pack_count};

/// How samples become packs.
#[derive(Debug, Clone, Copy)]
pub struct Packing<'a> {
    /// Tokens of a pack.
    pub length: u32,
    /// How samples are joined.
    pub policy: Policy,
    /// How far samples are moved.
    pub shuffle: Shuffle,
    /// Identity of what is packed; decides which samples share a block.
    pub source: &'a Digest,
}

/// What is measured of all rows of a version.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// Tokens of each row.
    pub lengths: &'a [u32],
    /// 1 for rows that are planned; all are, if there is none.
    pub kept: Option<&'a [u8]>,
    /// First planned token of each row, where that is not the first one.
    pub starts: Option<&'a [u32]>,
}

/// Writes the table of the samples that are kept, and returns its head.
pub fn build_table(
    path: &Path,
    measured: Measured<'_>,
    packing: Packing<'_>,
) -> Result<TableHead, FeedError> {
    let Measured { lengths, kept, starts } = measured;
    let differ = |count: usize| count != lengths.len();
    if kept.is_some_and(|kept| differ(kept.len())) || starts.is_some_and(|starts| differ(starts.len())) {
        return Err(FeedError::Plan {
            reason: format!("{} lengths came with another number of verdicts or starts", lengths.len()),
        });
    }
    let rows: Vec<u64> =
        (0..lengths.len() as u64).filter(|&row| kept.is_none_or(|kept| kept[row as usize] != 0)).collect();
    let of = |values: &[u32]| rows.iter().map(|&row| values[row as usize]).collect();
    let samples = BlockRows { lengths: of(lengths), starts: starts.map(of).unwrap_or_default(), rows };
    write_table(path, &samples, packing)
}

/// Puts samples, which come as they are stored, into blocks and writes the table of them.
pub(super) fn write_table(
    path: &Path,
    samples: &BlockRows,
    packing: Packing<'_>,
) -> Result<TableHead, FeedError> {
    if packing.policy == Policy::Crop {
        return write_crop_table(path, samples, packing);
    }
    let tokens = samples.lengths.iter().map(|&length| u64::from(length)).sum();
    let rows = samples.rows.len() as u64;
    let blocks = Blocks::new(rows, tokens, packing.length, packing.shuffle, packing.source)?;
    let members = |block: u64| -> BlockRows {
        let mut block_rows = BlockRows::default();
        for sample in blocks.members(block).into_iter().flatten() {
            block_rows.rows.push(samples.rows[sample as usize]);
            block_rows.lengths.push(samples.lengths[sample as usize]);
            block_rows.starts.extend(samples.starts.get(sample as usize));
        }
        block_rows
    };
    let head = TableHead { tokens, samples: vec![], packs: vec![], parts: !samples.starts.is_empty() };
    write_blocks(path, head, packing, blocks.block_count(), members)
}

/// The table of all samples as they are stored. Crops are of neighbours, so whatever is shuffled, samples are not; and a block
/// also has the tokens after it that its crops end in, so that every crop lies in one block.
fn write_crop_table(path: &Path, samples: &BlockRows, packing: Packing<'_>) -> Result<TableHead, FeedError> {
    let tokens = samples.lengths.iter().map(|&length| u64::from(length)).sum();
    if crop_rows(tokens, packing.length) == 0 {
        let reason = format!("{tokens} tokens hold no crop of {}", packing.length);
        return Err(FeedError::Plan { reason });
    }
    let blocks = crop_blocks(&samples.lengths, packing.length);
    let members = |block: u64| -> BlockRows {
        let (range, last) = blocks[block as usize].clone();
        let of = |values: &[u32]| values.get(range.clone()).unwrap_or_default().to_vec();
        let mut lengths = of(&samples.lengths);
        if let Some(length) = lengths.last_mut() {
            *length = last;
        }
        BlockRows { rows: samples.rows[range.clone()].to_vec(), lengths, starts: of(&samples.starts) }
    };
    let head = TableHead { tokens, samples: vec![], packs: vec![], parts: !samples.starts.is_empty() };
    write_blocks(path, head, packing, blocks.len() as u64, members)
}

/// Writes the blocks of a table, and its head once they are counted.
fn write_blocks(
    path: &Path,
    mut head: TableHead,
    packing: Packing<'_>,
    blocks: u64,
    members: impl Fn(u64) -> BlockRows,
) -> Result<TableHead, FeedError> {
    // Two passes over the blocks: the head, which comes first, holds what the first pass counts.
    for block in 0..blocks {
        let block_rows = members(block);
        head.samples.push(block_rows.rows.len() as u32);
        head.packs.push(pack_count(&block_rows.lengths, packing.length, packing.policy)?);
    }
    let mut writer = TableWriter::create(path, &head)?;
    for block in 0..blocks {
        writer.block(&members(block))?;
    }
    writer.finish()?;
    Ok(head)
}
