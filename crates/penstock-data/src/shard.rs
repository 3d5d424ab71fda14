//! A shard open for reading: the raw file, checked block by block, and the index that says where rows are.

use std::sync::Arc;

use penstock_io::{BlockSums, CheckedFile, Damage, IoError, ReadAt};

use crate::DataError;
use crate::frame_cache::FrameCache;
use crate::gather::{Gathered, gather};
use crate::index::{Index, Layout, Span};

/// A raw file and its index. Safe to share between threads.
pub struct Shard {
    /// The file; every byte that leaves it has matched its block's sum.
    pub(crate) file: CheckedFile,
    /// Where rows are.
    pub(crate) index: Arc<Index>,
    /// Frames decompressed lately; unused where nothing is compressed.
    pub(crate) frames: FrameCache,
}

impl Shard {
    /// Joins a file and its index. A file of another length than registered is refused here, other changes when touched.
    pub fn open(file: Arc<dyn ReadAt>, index: Arc<Index>) -> Result<Self, DataError> {
        let sums: Arc<dyn BlockSums> = index.clone();
        Ok(Self { file: CheckedFile::new(file, sums)?, index, frames: FrameCache::default() })
    }

    /// What errors call the file.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.index.rows()
    }

    /// The index.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// How many blocks have been found good since opening.
    pub fn blocks_good(&self) -> u64 {
        self.file.blocks_good()
    }

    /// The bytes of one row: a line without its terminator, the members of a sample, the data of a record.
    pub fn read_row(&self, row: u64) -> Result<Vec<u8>, DataError> {
        self.gather(&[row], 1).map(|gathered| gathered.bytes)
    }

    /// The bytes of many rows, in the order asked for. `threads` of 0 means one per core.
    pub fn gather(&self, rows: &[u64], threads: usize) -> Result<Gathered, DataError> {
        gather(self, rows, threads)
    }

    /// Bytes of the raw file, checked; for readers that find rows themselves.
    pub fn read_range(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, DataError> {
        Ok(self.file.read(offset, bytes)?)
    }

    /// Fills `into` with bytes of the raw file, checked.
    pub fn read_range_into(&self, offset: u64, into: &mut [u8]) -> Result<(), DataError> {
        Ok(self.file.read_into(offset, into)?)
    }

    /// Says which bytes of the raw file will be read soon.
    pub fn will_need(&self, ranges: &[std::ops::Range<u64>]) {
        self.file.will_need(ranges);
    }

    /// Reads the whole file again and returns all damage. `progress` is told bytes done, and ends the work by returning
    /// false.
    pub fn verify(&self, progress: &mut dyn FnMut(u64) -> bool) -> Vec<Damage> {
        self.file.verify_all(progress)
    }

    /// Where a row lies, or why that cannot be said.
    pub(crate) fn span(&self, row: u64) -> Result<Span, DataError> {
        let (shard, rows) = (self.name().to_owned(), self.rows());
        if row >= rows {
            return Err(DataError::OutOfRange { shard, row, rows });
        }
        let span = self.index.row(row);
        match span {
            None if self.index.document().layout == Layout::Opaque => Err(DataError::NoRanges { shard }),
            Some(span)
                if span
                    .offset
                    .checked_add(span.length)
                    .is_some_and(|end| end <= self.index.content_bytes()) =>
            {
                Ok(span)
            }
            _ => Err(DataError::index_damaged(format!("row {row} of `{shard}` lies outside it"))),
        }
    }
}

/// Threads for `wanted`: 0 means one per core.
pub(crate) fn thread_count(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        wanted => wanted,
    }
}

/// A thread that could not be started.
pub(crate) fn no_thread(shard: &str, error: &std::io::Error) -> DataError {
    let reason = format!("a thread cannot be started: {error}");
    DataError::Io(IoError::Other { name: shard.to_owned(), offset: None, reason })
}

#[cfg(test)]
mod tests {
    use penstock_io::MemoryFile;
    use proptest::prelude::*;

    use super::*;
    use crate::scan::{Format, LineFormat, Opaque, RowPlaces, ScanOptions, ScanRequest, scan_opaque};
    use crate::testing::try_scan;

    fn text() -> Vec<u8> {
        (0..3_000)
            .map(|i| format!("{{\"id\":{i},\"text\":\"{}\"}}\n", "abc ".repeat(i % 50)))
            .collect::<String>()
            .into()
    }

    /// The same lines as a plain file and as frames of 20 KB, whose rows cross frames.
    fn shards() -> Vec<(Arc<MemoryFile>, Shard)> {
        let packed: Vec<u8> =
            text().chunks(20_000).flat_map(|piece| zstd::bulk::compress(piece, 3).unwrap()).collect();
        [(Format::Lines(LineFormat::Jsonl), text()), (Format::Frames(LineFormat::Jsonl), packed)]
            .into_iter()
            .map(|(format, raw)| {
                let index = try_scan(format, &raw, &ScanOptions::default()).unwrap().open();
                let file = Arc::new(MemoryFile::new("shard", raw));
                (file.clone(), Shard::open(file, Arc::new(index)).unwrap())
            })
            .collect()
    }

    fn line(row: u64) -> Vec<u8> {
        text().split(|byte| *byte == b'\n').nth(row as usize).unwrap().to_vec()
    }

    #[test]
    fn rows_come_back_alone_and_wild_rows_are_refused() {
        for (_, shard) in shards() {
            assert_eq!(shard.read_row(1_234).unwrap(), line(1_234));
            let refused = shard.read_row(3_000).unwrap_err();
            assert_eq!(refused, DataError::OutOfRange { shard: "shard".into(), row: 3_000, rows: 3_000 });
            assert!(shard.gather(&[1, u64::MAX], 2).is_err());
        }
    }

    #[test]
    fn a_shard_that_shrinks_is_truncated_not_wrong() {
        for (file, shard) in shards() {
            file.truncate(100);
            assert!(matches!(shard.read_row(2_999), Err(DataError::Truncated { .. })));
        }
    }

    #[test]
    fn an_index_without_ranges_still_gives_checked_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let index_path = dir.path().join("index");
        let options = ScanOptions::default();
        let request =
            ScanRequest { shard: "shard", index_path: &index_path, options: &options, progress: None };
        let known = Opaque {
            format: "parquet",
            rows: RowPlaces::Counted(5),
            schema: vec![],
            details: Default::default(),
        };
        scan_opaque(text().as_slice(), known, request).unwrap();
        let index = Arc::new(Index::open_path(&index_path, None).unwrap());
        let file = Arc::new(MemoryFile::new("shard", text()));
        let shard = Shard::open(file.clone(), index).unwrap();
        assert_eq!(shard.read_row(0), Err(DataError::NoRanges { shard: "shard".into() }));
        assert_eq!(shard.read_range(70_000, 100).unwrap(), text()[70_000..70_100]);
        file.flip_bit(3, 3);
        assert!(matches!(shard.read_range(0, 1), Err(DataError::Corrupt { offset: 0, .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Goal: `gather` keeps order. Method: any rows, repeats included, on any number of threads.
        #[test]
        fn gathered_rows_are_in_the_order_asked_for(rows in prop::collection::vec(0u64..3_000, 0..1_500), threads in 0usize..5) {
            let text = text();
            let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
            for (_, shard) in shards() {
                let gathered = shard.gather(&rows, threads).unwrap();
                let expected: Vec<&[u8]> = rows.iter().map(|row| lines[*row as usize]).collect();
                prop_assert_eq!(gathered.iter().collect::<Vec<_>>(), expected);
                prop_assert_eq!(gathered.ends.len(), rows.len());
            }
        }

        /// Goal: D4, no delivered byte is unchecked. Method: flip any one bit, then read every row and verify.
        #[test]
        fn one_flipped_bit_is_never_read(at in any::<prop::sample::Index>(), bit in 0u8..8, threads in 1usize..3) {
            for (file, shard) in shards() {
                let byte = at.index(shard.file.bytes() as usize) as u64;
                file.flip_bit(byte, bit);
                let rows: Vec<u64> = (0..3_000).collect();
                let block = byte / 65_536 * 65_536;
                let corrupt = matches!(shard.gather(&rows, threads), Err(DataError::Corrupt { offset, .. }) if offset == block);
                prop_assert!(corrupt);
                let damage = shard.verify(&mut |_| true);
                prop_assert_eq!((damage.len(), damage[0].offset), (1, block));
            }
        }
    }
}
