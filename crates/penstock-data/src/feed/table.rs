//! The plan table of a packed source: which samples make up each block, and how long they are, in block order.
//!
//! ```text
//! file   = "PENTABLE" | version u32 | zero u32 | head | block*
//! head   = rows u64 | tokens u64 | blocks u64 | (samples u32, packs u32) per block | check u64
//! block  = row u64 * m | length u32 * m | start u32 * m (version 2) | check u64  (m = samples of the block)
//! ```
//! Version 2 is for samples of which only a part is planned: it says at which token that part begins.
//!
//! Planning a block is one contiguous read of one place of the file, at any scale; nothing else of it is touched. Every block
//! carries its own check, so a table is trusted block by block, as shards are.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use super::FeedError;
use crate::plan::{Policy, crop_rows};
use penstock_io::{Digest, DigestStream, ReadAt, block_sum};

const MAGIC: &[u8; 8] = b"PENTABLE";
/// Samples from their first token on.
const WHOLE: u32 = 1;
/// Samples from any token on.
const PARTS: u32 = 2;
const PREFIX_BYTES: u64 = 40;
const CHECK_BYTES: u64 = 8;
const BLOCKS_MAX: u64 = 1 << 32;

/// What is known of a packed source before any block is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableHead {
    /// Tokens of all samples.
    pub tokens: u64,
    /// Samples of each block.
    pub samples: Vec<u32>,
    /// Packs of each block.
    pub packs: Vec<u32>,
    /// Whether samples say at which token they begin.
    pub parts: bool,
}

impl TableHead {
    /// Packs of all blocks.
    pub fn pack_count(&self) -> u64 {
        self.packs.iter().map(|&packs| u64::from(packs)).sum()
    }

    /// Rows of an epoch: all packs, or as many crops as the tokens would fill.
    pub fn epoch_rows(&self, policy: Policy, length: u32) -> u64 {
        match policy {
            Policy::Crop => crop_rows(self.tokens, length),
            Policy::Concat | Policy::Fit | Policy::Single => self.pack_count(),
        }
    }

    /// Samples in all blocks.
    pub fn rows(&self) -> u64 {
        self.samples.iter().map(|&count| u64::from(count)).sum()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24 + self.samples.len() * 8);
        for number in [self.rows(), self.tokens, self.samples.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for (samples, packs) in self.samples.iter().zip(&self.packs) {
            bytes.extend_from_slice(&samples.to_le_bytes());
            bytes.extend_from_slice(&packs.to_le_bytes());
        }
        bytes
    }

    /// Bytes of a sample in its block.
    fn row_bytes(&self) -> u64 {
        if self.parts { 16 } else { 12 }
    }
}

/// The samples of one block, in the order in which the table holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockRows {
    /// Row of the version, per sample.
    pub rows: Vec<u64>,
    /// Length in tokens, per sample.
    pub lengths: Vec<u32>,
    /// First token, per sample; empty when samples begin with their first.
    pub starts: Vec<u32>,
}

impl BlockRows {
    /// First planned token of a sample.
    pub fn start(&self, sample: usize) -> u32 {
        self.starts.get(sample).copied().unwrap_or(0)
    }
}

/// Writes a table block by block.
pub struct TableWriter {
    file: BufWriter<File>,
    digest: DigestStream,
    path: String,
}

impl TableWriter {
    /// Creates the file and writes its head.
    pub fn create(path: &Path, head: &TableHead) -> Result<Self, FeedError> {
        let name = path.display().to_string();
        let failed = |error: &dyn std::fmt::Display| FeedError::TableWrite {
            path: name.clone(),
            reason: error.to_string(),
        };
        let file = File::create(path).map_err(|error| failed(&error))?;
        let mut writer = Self {
            file: BufWriter::with_capacity(1 << 20, file),
            digest: DigestStream::default(),
            path: name.clone(),
        };
        let version = if head.parts { PARTS } else { WHOLE };
        let head = head.encode();
        writer.put(MAGIC)?;
        writer.put(&version.to_le_bytes())?;
        writer.put(&[0; 4])?;
        writer.put(&head)?;
        writer.put(&block_sum(&head).to_le_bytes())?;
        Ok(writer)
    }

    /// Appends a block.
    pub fn block(&mut self, block: &BlockRows) -> Result<(), FeedError> {
        let mut bytes = Vec::with_capacity(block.rows.len() * 16);
        block.rows.iter().for_each(|row| bytes.extend_from_slice(&row.to_le_bytes()));
        let halves = block.lengths.iter().chain(&block.starts);
        halves.for_each(|half| bytes.extend_from_slice(&half.to_le_bytes()));
        self.put(&bytes)?;
        self.put(&block_sum(&bytes).to_le_bytes())
    }

    /// Syncs the file; its digest.
    pub fn finish(mut self) -> Result<Digest, FeedError> {
        let path = self.path.clone();
        let failed = move |error: std::io::Error| FeedError::TableWrite {
            path: path.clone(),
            reason: error.to_string(),
        };
        self.file.flush().map_err(&failed)?;
        self.file.get_ref().sync_all().map_err(&failed)?;
        Ok(self.digest.finish().0)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FeedError> {
        self.digest.update(bytes);
        let failed = |error: std::io::Error| FeedError::TableWrite {
            path: self.path.clone(),
            reason: error.to_string(),
        };
        self.file.write_all(bytes).map_err(failed)
    }
}

/// A table open for reading.
pub struct Table {
    /// The file, or whatever stands for it.
    file: Arc<dyn ReadAt>,
    head: TableHead,
    /// Where each block begins, and where the last one ends.
    starts: Vec<u64>,
}

impl Table {
    /// Opens a table and checks its head.
    pub fn open(file: Arc<dyn ReadAt>) -> Result<Self, FeedError> {
        let name = file.name().to_owned();
        let damaged =
            |reason: &str| FeedError::TableDamaged { table: name.clone(), reason: reason.to_owned() };
        let mut prefix = [0; PREFIX_BYTES as usize];
        file.read_at(0, &mut prefix).map_err(|_| damaged("it is too short"))?;
        let version = half(&prefix[8..12]);
        if &prefix[..8] != MAGIC || ![WHOLE, PARTS].contains(&version) || prefix[12..16] != [0; 4] {
            return Err(damaged("it does not begin as a table of a known version does"));
        }
        let (rows, tokens, blocks) = (word(&prefix[16..24]), word(&prefix[24..32]), word(&prefix[32..40]));
        if blocks > BLOCKS_MAX || blocks * 8 > file.len() {
            return Err(damaged("it names more blocks than it can hold"));
        }
        let mut head = vec![0; (24 + blocks * 8 + CHECK_BYTES) as usize];
        file.read_at(16, &mut head).map_err(|_| damaged("its head is cut off"))?;
        let (head, check) = head.split_at(head.len() - CHECK_BYTES as usize);
        if block_sum(head).to_le_bytes() != check {
            return Err(damaged("its head does not match its check"));
        }
        let counts: Vec<u32> = head[24..].chunks_exact(4).map(half).collect();
        let samples: Vec<u32> = counts.iter().step_by(2).copied().collect();
        let packs = counts.iter().skip(1).step_by(2).copied().collect();
        let head = TableHead { tokens, samples, packs, parts: version == PARTS };
        let mut at = PREFIX_BYTES + blocks * 8 + CHECK_BYTES;
        let mut starts = vec![at];
        for &count in &head.samples {
            at += u64::from(count) * head.row_bytes() + CHECK_BYTES;
            starts.push(at);
        }
        let table = Self { head, starts, file };
        if table.head.rows() != rows || table.file.len() != at {
            return Err(damaged("its length is not what its head says"));
        }
        Ok(table)
    }

    /// What is known before any block is read.
    pub fn head(&self) -> &TableHead {
        &self.head
    }

    /// The samples of a block, checked.
    pub fn block(&self, block: u64) -> Result<BlockRows, FeedError> {
        let damaged = |reason: String| FeedError::TableDamaged { table: self.file.name().to_owned(), reason };
        let place = usize::try_from(block).ok().filter(|&place| place < self.head.samples.len());
        let Some(place) = place else {
            return Err(damaged(format!(
                "block {block} was asked for, but there are {}",
                self.head.samples.len()
            )));
        };
        let count = self.head.samples[place] as usize;
        let bytes = count * self.head.row_bytes() as usize;
        let mut data = vec![0; bytes + CHECK_BYTES as usize];
        self.file.read_at(self.starts[place], &mut data).map_err(|error| damaged(error.to_string()))?;
        let (data, check) = data.split_at(bytes);
        if block_sum(data).to_le_bytes() != check {
            return Err(damaged(format!("block {block} does not match its check")));
        }
        let (rows, halves) = data.split_at(count * 8);
        let (lengths, starts) = halves.split_at(count * 4);
        Ok(BlockRows {
            rows: rows.chunks_exact(8).map(word).collect(),
            lengths: lengths.chunks_exact(4).map(half).collect(),
            starts: starts.chunks_exact(4).map(half).collect(),
        })
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn half(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use penstock_io::{LocalFile, MemoryFile};
    use proptest::prelude::*;

    use super::*;

    fn written(blocks: &[BlockRows], packs: &[u32]) -> Vec<u8> {
        let tokens = blocks.iter().flat_map(|block| &block.lengths).map(|&length| u64::from(length)).sum();
        let samples = blocks.iter().map(|block| block.rows.len() as u32).collect();
        let parts = blocks.iter().any(|block| !block.starts.is_empty());
        let head = TableHead { tokens, samples, packs: packs.to_vec(), parts };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let mut writer = TableWriter::create(&path, &head).unwrap();
        blocks.iter().for_each(|block| writer.block(block).unwrap());
        let digest = writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(digest, Digest::of(&bytes));
        assert_eq!(Table::open(Arc::new(LocalFile::open(&path).unwrap())).unwrap().head(), &head);
        bytes
    }

    fn open(bytes: Vec<u8>) -> Result<Table, FeedError> {
        Table::open(Arc::new(MemoryFile::new("table", bytes)))
    }

    /// Everything that a table says, or the first thing that is wrong with it.
    fn read(bytes: Vec<u8>) -> Result<(TableHead, Vec<BlockRows>), FeedError> {
        let table = open(bytes)?;
        let blocks = (0..table.head().samples.len() as u64).map(|block| table.block(block));
        let blocks = blocks.collect::<Result<_, _>>()?;
        Ok((table.head().clone(), blocks))
    }

    /// A table of whole samples, or the same of samples that begin somewhere.
    fn small(parts: bool) -> (Vec<BlockRows>, Vec<u32>) {
        let block = |rows: &[u64], lengths: &[u32]| BlockRows {
            rows: rows.into(),
            lengths: lengths.into(),
            starts: if parts { lengths.iter().map(|length| length / 2 + 1).collect() } else { vec![] },
        };
        (vec![block(&[5, 0, u64::MAX], &[7, 0, u32::MAX]), block(&[], &[]), block(&[9], &[1])], vec![3, 0, 1])
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        for parts in [false, true] {
            let (blocks, packs) = small(parts);
            let good = written(&blocks, &packs);
            assert_eq!(read(good.clone()).unwrap().1, blocks);
            assert_damage_is_noticed(&good);
        }
    }

    fn assert_damage_is_noticed(good: &[u8]) {
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let outcome = read(bad);
            assert!(
                matches!(&outcome, Err(FeedError::TableDamaged { table, .. }) if table == "table"),
                "{bit}"
            );
        }
        for end in 0..good.len() {
            assert!(matches!(read(good[..end].to_vec()), Err(FeedError::TableDamaged { .. })), "{end}");
        }
        assert!(matches!(read([good, b"x"].concat()), Err(FeedError::TableDamaged { .. })));
    }

    #[test]
    fn a_block_that_is_not_there_is_an_error() {
        let (blocks, packs) = small(false);
        let table = open(written(&blocks, &packs)).unwrap();
        for block in [3, u64::MAX] {
            assert!(matches!(table.block(block), Err(FeedError::TableDamaged { .. })));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Goal: what is written is read, block by block in any order. Method: tables of any shape.
        #[test]
        fn a_table_comes_back(
            blocks in prop::collection::vec(prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 0..40), 0..12),
            parts in any::<bool>(),
        ) {
            let packs: Vec<u32> = blocks.iter().map(|block| block.first().map_or(0, |first| first.2)).collect();
            let blocks: Vec<BlockRows> = blocks
                .iter()
                .map(|block| {
                    let (rows, lengths) = block.iter().map(|(row, length, _)| (*row, *length)).unzip();
                    let starts = if parts { block.iter().map(|sample| sample.2).collect() } else { vec![] };
                    BlockRows { rows, lengths, starts }
                })
                .collect();
            let table = open(written(&blocks, &packs)).unwrap();
            prop_assert_eq!(&table.head().packs, &packs);
            for (number, block) in blocks.iter().enumerate().rev() {
                prop_assert_eq!(&table.block(number as u64).unwrap(), block);
            }
        }
    }
}
