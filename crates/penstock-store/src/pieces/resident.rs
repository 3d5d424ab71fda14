//! A piece that is here: in memory of this process, or a mapping of its file in the host cache, which all processes share.
//!
//! Each block is summed when it is first touched, wherever it came from, and a bit remembers; only good blocks are handed out.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use penstock_io::{BLOCK_BYTES, BlockSums, Mapping, padded_sum};

/// The bytes of one piece, and which of its blocks are checked. A piece has at most 64 blocks.
pub(crate) struct Resident {
    held: Held,
    bytes: usize,
    /// One bit per block, set once it was found good. Never cleared.
    good: AtomicU64,
    /// Whether it was read since the budget last looked.
    used: AtomicBool,
}

enum Held {
    Memory(Box<[u8]>),
    Mapped(Mapping),
}

/// A block was not what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rotten;

impl Resident {
    /// Bytes that have been checked already.
    pub(crate) fn checked(data: Box<[u8]>) -> Self {
        let bytes = data.len();
        Self::new(Held::Memory(data), bytes, u64::MAX)
    }

    /// The first `bytes` bytes of a file of the cache; read if they cannot be mapped.
    pub(crate) fn of_file(file: &File, bytes: usize) -> Option<Self> {
        if let Some(mapping) = Mapping::new(file, bytes as u64) {
            return Some(Self::new(Held::Mapped(mapping), bytes, 0));
        }
        let mut data = vec![0; bytes].into_boxed_slice();
        std::os::unix::fs::FileExt::read_exact_at(file, &mut data, 0).ok()?;
        Some(Self::new(Held::Memory(data), bytes, 0))
    }

    fn new(held: Held, bytes: usize, good: u64) -> Self {
        Self { held, bytes, good: AtomicU64::new(good), used: AtomicBool::new(true) }
    }

    /// Bytes of memory that it takes from this process alone.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.held {
            Held::Memory(_) => self.bytes,
            Held::Mapped(_) => 0,
        }
    }

    /// Whether it was read since this was last asked.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Fills `into` with the bytes at `skip`, each block checked; `first_block` is the number of the piece's first block in its object.
    pub(crate) fn copy(
        &self,
        skip: usize,
        into: &mut [u8],
        sums: &dyn BlockSums,
        first_block: u64,
    ) -> Result<(), Rotten> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let (first, last) = (skip / BLOCK, (skip + into.len()).saturating_sub(1) / BLOCK);
        let good = self.good.load(Ordering::Acquire);
        for block in first..=last {
            if good & (1 << block) == 0 {
                self.check(block, sums, first_block)?;
            }
        }
        match &self.held {
            Held::Memory(data) => into.copy_from_slice(&data[skip..skip + into.len()]),
            Held::Mapped(mapping) => {
                if !mapping.copy(skip as u64, into) {
                    return Err(Rotten);
                }
            }
        }
        Ok(())
    }

    fn check(&self, block: usize, sums: &dyn BlockSums, first_block: u64) -> Result<(), Rotten> {
        let range = block * BLOCK..((block + 1) * BLOCK).min(self.bytes);
        let number = first_block + block as u64;
        let sum = |data: &[u8]| padded_sum(data, number, sums.file_bytes());
        let actual = match &self.held {
            Held::Memory(data) => Some(sum(&data[range])),
            Held::Mapped(mapping) => mapping.look(range, sum),
        };
        if actual.is_none() || actual != sums.sum(number) {
            return Err(Rotten);
        }
        self.good.fetch_or(1 << block, Ordering::Release);
        Ok(())
    }
}

const BLOCK: usize = BLOCK_BYTES as usize;
