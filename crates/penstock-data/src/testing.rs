//! What the tests of this crate share: a scan of bytes in memory, and a reader that hands out pieces of given sizes.

use std::io::Read;
use std::sync::Arc;

use penstock_io::MemoryFile;

use crate::scan::{Format, ScanOptions, ScanRequest, ScanSummary, scan};
use crate::{DataError, Index, Shard};

/// A scan that is done: the raw bytes, what was found, and the bytes of the index.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) raw: Vec<u8>,
    pub(crate) summary: ScanSummary,
    pub(crate) index: Vec<u8>,
}

impl Scanned {
    /// Scans `input`, which hands out `raw`.
    pub(crate) fn new(
        format: Format,
        raw: &[u8],
        input: impl Read,
        options: &ScanOptions,
    ) -> Result<Self, DataError> {
        let dir = tempfile::tempdir().unwrap();
        let index_path = dir.path().join("index");
        let summary = scan(
            format,
            input,
            ScanRequest { shard: "shard", index_path: &index_path, options, progress: None },
        );
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, usize::from(summary.is_ok()), "an index is whole or absent");
        let index = std::fs::read(&index_path).unwrap_or_default();
        summary.map(|summary| Self { raw: raw.to_vec(), summary, index })
    }

    /// The index, checked against its digest.
    pub(crate) fn open(&self) -> Index {
        Index::from_bytes(self.index.clone(), Some(self.summary.index_digest)).unwrap()
    }

    /// All rows, read through a shard.
    pub(crate) fn rows(&self) -> Vec<Vec<u8>> {
        let file = Arc::new(MemoryFile::new("shard", self.raw.clone()));
        let shard = Shard::open(file, Arc::new(self.open())).unwrap();
        let rows: Vec<u64> = (0..shard.rows()).collect();
        shard.gather(&rows, 1).unwrap().iter().map(<[u8]>::to_vec).collect()
    }
}

/// Scans bytes in memory.
pub(crate) fn try_scan(format: Format, raw: &[u8], options: &ScanOptions) -> Result<Scanned, DataError> {
    Scanned::new(format, raw, raw, options)
}

/// Scans text that is known to be good.
pub(crate) fn scan_text(format: Format, text: &str) -> Scanned {
    try_scan(format, text.as_bytes(), &ScanOptions::default()).unwrap()
}

/// Hands out its bytes in pieces of the given sizes, over and over.
pub(crate) struct Dribble<'a> {
    rest: &'a [u8],
    pieces: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl<'a> Dribble<'a> {
    pub(crate) fn new(bytes: &'a [u8], pieces: Vec<usize>) -> Self {
        Self { rest: bytes, pieces: pieces.into_iter().cycle() }
    }
}

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.pieces.next().unwrap_or(1).min(into.len()).min(self.rest.len());
        let (head, rest) = self.rest.split_at(count);
        into[..count].copy_from_slice(head);
        self.rest = rest;
        Ok(count)
    }
}
