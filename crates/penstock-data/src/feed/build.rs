//! Building a plan table: the only work that looks at every sample, done once per version, filter, length and policy.

use std::path::Path;

use penstock_io::Digest;

use super::FeedError;
use super::table::{BlockRows, TableHead, TableWriter};
use crate::plan::{Blocks, Policy, Shuffle, pack_count};

/// How samples become packs.
#[derive(Debug, Clone, Copy)]
pub struct Packing<'a> {
    /// Tokens of a pack.
    pub length: u32,
    /// How samples are joined.
    pub policy: Policy,
    /// How far samples are moved.
    pub shuffle: Shuffle,
    /// Identity of the version; decides which samples share a block.
    pub source: &'a Digest,
}

/// Writes the table of the samples that `kept` keeps (all, if there is none), and returns its head.
pub fn build_table(
    path: &Path,
    lengths: &[u32],
    kept: Option<&[u8]>,
    packing: Packing<'_>,
) -> Result<TableHead, FeedError> {
    if kept.is_some_and(|kept| kept.len() != lengths.len()) {
        return Err(FeedError::Plan {
            reason: format!("{} lengths came with another number of verdicts", lengths.len()),
        });
    }
    let survivors: Vec<u64> = match kept {
        None => (0..lengths.len() as u64).collect(),
        Some(kept) => (0..lengths.len() as u64).filter(|&row| kept[row as usize] != 0).collect(),
    };
    let tokens = survivors.iter().map(|&row| u64::from(lengths[row as usize])).sum();
    let rows = survivors.len() as u64;
    let blocks = Blocks::new(rows, tokens, packing.length, packing.shuffle, packing.source)?;
    let members = |block: u64| -> Result<BlockRows, FeedError> {
        let places = blocks.members(block).into_iter().flatten();
        let rows: Vec<u64> = places.map(|sample| survivors[sample as usize]).collect();
        let lengths = rows.iter().map(|&row| lengths[row as usize]).collect();
        Ok(BlockRows { rows, lengths })
    };
    // Two passes over the blocks: the head, which comes first, holds what the first pass counts.
    let mut head = TableHead { tokens, samples: Vec::new(), packs: Vec::new() };
    for block in 0..blocks.block_count() {
        let found = members(block)?;
        head.samples.push(found.rows.len() as u32);
        head.packs.push(pack_count(&found.lengths, packing.length, packing.policy)?);
    }
    let mut writer = TableWriter::create(path, &head)?;
    for block in 0..blocks.block_count() {
        writer.block(&members(block)?)?;
    }
    writer.finish()?;
    Ok(head)
}
