//! The plan table of a packed source: which samples make up each block, and how long they are, in block order.
//!
//! ```text
//! file   = "PENTABLE" | version u32 | head bytes u32 | head | block*
//! head   = JSON: rows, rows_per_block, tokens, packs per block (one array), sum of all that
//! block  = row u64 * m | length u32 * m | check u64          (m = rows_per_block, fewer in the last block)
//! ```
//! Planning a block is one contiguous read of one place of the file, at any scale; nothing else of it is touched. Every block
//! carries its own check, so a table is trusted block by block, as shards are.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use penstock_io::{Digest, DigestStream, ReadAt, block_sum};
use serde::{Deserialize, Serialize};

use super::FeedError;

const MAGIC: &[u8; 8] = b"PENTABLE";
const VERSION: u32 = 1;
const PREFIX_BYTES: u64 = 16;
const ROW_BYTES: u64 = 12;
const CHECK_BYTES: u64 = 8;
const HEAD_BYTES_MAX: u32 = 1 << 30;

/// What is known of a packed source before any block is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableHead {
    /// Samples in all blocks.
    pub rows: u64,
    /// Samples in each block but the last.
    pub rows_per_block: u64,
    /// Tokens of all samples.
    pub tokens: u64,
    /// Packs of each block.
    pub packs: Vec<u32>,
}

/// The samples of one block, in the order in which the table holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRows {
    /// Row of the version, per sample.
    pub rows: Vec<u64>,
    /// Length in tokens, per sample.
    pub lengths: Vec<u32>,
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
        let failed = |error: &dyn std::fmt::Display| FeedError::TableWrite { path: name.clone(), reason: error.to_string() };
        let file = File::create(path).map_err(|error| failed(&error))?;
        let mut writer = Self { file: BufWriter::with_capacity(1 << 20, file), digest: DigestStream::default(), path: name.clone() };
        let head = serde_json::to_vec(head).map_err(|error| failed(&error))?;
        let length = u32::try_from(head.len()).map_err(|error| failed(&error))?;
        writer.put(MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        writer.put(&length.to_le_bytes())?;
        writer.put(&head)?;
        writer.put(&block_sum(&head).to_le_bytes())?;
        Ok(writer)
    }

    /// Appends a block.
    pub fn block(&mut self, block: &BlockRows) -> Result<(), FeedError> {
        let mut bytes = Vec::with_capacity(block.rows.len() * ROW_BYTES as usize);
        block.rows.iter().for_each(|row| bytes.extend_from_slice(&row.to_le_bytes()));
        block.lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
        self.put(&bytes)?;
        self.put(&block_sum(&bytes).to_le_bytes())
    }

    /// Syncs the file; its digest.
    pub fn finish(mut self) -> Result<Digest, FeedError> {
        let path = self.path.clone();
        let failed = move |error: std::io::Error| FeedError::TableWrite { path: path.clone(), reason: error.to_string() };
        self.file.flush().map_err(&failed)?;
        self.file.get_ref().sync_all().map_err(&failed)?;
        Ok(self.digest.finish().0)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FeedError> {
        self.digest.update(bytes);
        let failed = |error: std::io::Error| FeedError::TableWrite { path: self.path.clone(), reason: error.to_string() };
        self.file.write_all(bytes).map_err(failed)
    }
}

/// A table open for reading.
pub struct Table {
    /// The file, or whatever stands for it.
    file: Arc<dyn ReadAt>,
    head: TableHead,
    /// Where the first block begins.
    blocks_at: u64,
}

impl Table {
    /// Opens a table and checks its head.
    pub fn open(file: Arc<dyn ReadAt>) -> Result<Self, FeedError> {
        let name = file.name().to_owned();
        let damaged = |reason: &str| FeedError::TableDamaged { table: name.clone(), reason: reason.to_owned() };
        let mut prefix = [0; PREFIX_BYTES as usize];
        file.read_at(0, &mut prefix).map_err(|_| damaged("it is too short"))?;
        if &prefix[..8] != MAGIC {
            return Err(damaged("it does not begin with PENTABLE"));
        }
        let version = u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
        let length = u32::from_le_bytes([prefix[12], prefix[13], prefix[14], prefix[15]]);
        if version != VERSION || length > HEAD_BYTES_MAX {
            return Err(damaged("its version or head is not one that is known"));
        }
        let mut head = vec![0; length as usize + CHECK_BYTES as usize];
        file.read_at(PREFIX_BYTES, &mut head).map_err(|_| damaged("its head is cut off"))?;
        let (head, check) = head.split_at(length as usize);
        if block_sum(head).to_le_bytes() != check {
            return Err(damaged("its head does not match its check"));
        }
        let head: TableHead = serde_json::from_slice(head).map_err(|error| damaged(&error.to_string()))?;
        let table = Self { file, head, blocks_at: PREFIX_BYTES + u64::from(length) + CHECK_BYTES };
        if table.head.rows_per_block == 0 || table.expected_bytes() != Some(table.file.len()) {
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
        let first = block.saturating_mul(self.head.rows_per_block);
        if first >= self.head.rows {
            return Err(damaged(format!("block {block} was asked for, but there are {}", self.head.packs.len())));
        }
        let count = self.head.rows_per_block.min(self.head.rows - first);
        let stride = self.head.rows_per_block * ROW_BYTES + CHECK_BYTES;
        let bytes = (count * ROW_BYTES) as usize;
        let mut data = vec![0; bytes + CHECK_BYTES as usize];
        self.file.read_at(self.blocks_at + block * stride, &mut data).map_err(|error| damaged(error.to_string()))?;
        let (data, check) = data.split_at(bytes);
        if block_sum(data).to_le_bytes() != check {
            return Err(damaged(format!("block {block} does not match its check")));
        }
        let (rows, lengths) = data.split_at(count as usize * 8);
        Ok(BlockRows {
            rows: rows.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect(),
            lengths: lengths.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
        })
    }

    fn expected_bytes(&self) -> Option<u64> {
        let blocks = self.head.rows.div_ceil(self.head.rows_per_block);
        if blocks != self.head.packs.len() as u64 {
            return None;
        }
        let rows = self.head.rows.checked_mul(ROW_BYTES)?;
        rows.checked_add(blocks.checked_mul(CHECK_BYTES)?)?.checked_add(self.blocks_at)
    }
}
