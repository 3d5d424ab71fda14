//! Tokens of a source: samples by row number, wherever in its shards they lie, checked block by block on first touch.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::FeedError;
use crate::{DataError, Shard};

/// Far shards that are opened at once.
const OPENERS: usize = 8;

/// How the rows of a shard are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLayout {
    /// The index holds a byte range per row.
    Ranges,
    /// Rows follow each other without gaps. Rows of no bytes are those of samples that somebody else reads: they are planned
    /// as single tokens, which are zero, and their shard is never opened.
    Fixed {
        /// Where the first row begins.
        offset: u64,
        /// Bytes of each row.
        row_bytes: u64,
    },
}

/// Opens a shard when it is first needed.
pub type OpenShard = dyn Fn() -> Result<Shard, FeedError> + Send + Sync;

/// A shard that is opened when it is first touched, since a start that opens a thousand files is a slow start.
pub struct LazyShard {
    rows: u64,
    layout: RowLayout,
    /// Whether its bytes are somewhere else, so that it is worth saying beforehand what will be read.
    is_far: bool,
    open: Box<OpenShard>,
    opened: OnceLock<Shard>,
    /// Held while opening, so that it happens once.
    opening: Mutex<()>,
}

impl LazyShard {
    /// A shard of `rows` rows.
    pub fn new(rows: u64, layout: RowLayout, open: Box<OpenShard>) -> Self {
        Self { rows, layout, is_far: false, open, opened: OnceLock::new(), opening: Mutex::new(()) }
    }

    /// The same for a file that is somewhere else.
    pub fn far(self, is_far: bool) -> Self {
        Self { is_far, ..self }
    }

    fn get(&self) -> Result<&Shard, FeedError> {
        if let Some(shard) = self.opened.get() {
            return Ok(shard);
        }
        let _held = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.opened.get().is_none() {
            let shard = (self.open)()?;
            if shard.rows() != self.rows {
                let reason = format!(
                    "the index of `{}` has {} rows, its version {}",
                    shard.name(),
                    shard.rows(),
                    self.rows
                );
                return Err(DataError::IndexDamaged { reason }.into());
            }
            let _ = self.opened.set(shard);
        }
        self.opened.get().ok_or(FeedError::Closed)
    }
}

/// A token after every row that has any, which is stored nowhere: rows are one token longer than they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separator {
    /// Its number.
    pub token: u64,
    /// How many stored tokens come before it at most; those after them are not read.
    pub row_tokens_max: u32,
}

/// The shards of one source, read as arrays of whole numbers of one width.
pub struct TokenSource {
    shards: Vec<LazyShard>,
    /// Rows up to and including each shard.
    ends: Vec<u64>,
    /// Bytes of a stored token: 1, 2, 4 or 8.
    item_bytes: usize,
    separator: Option<Separator>,
}

impl TokenSource {
    /// Joins shards in order.
    pub fn new(shards: Vec<LazyShard>, item_bytes: usize) -> Result<Self, FeedError> {
        if ![1, 2, 4, 8].contains(&item_bytes) {
            return Err(FeedError::Plan { reason: format!("tokens of {item_bytes} bytes are not known") });
        }
        let mut total: u64 = 0;
        let mut ends = Vec::with_capacity(shards.len());
        for shard in &shards {
            total = total.saturating_add(shard.rows);
            ends.push(total);
        }
        Ok(Self { shards, ends, item_bytes, separator: None })
    }

    /// The same with a token after every row that has any.
    pub fn with_separator(self, separator: Option<Separator>) -> Result<Self, FeedError> {
        let bits = self.item_bytes as u32 * 8;
        if separator.is_some_and(|separator| separator.token.checked_shr(bits).unwrap_or(0) != 0) {
            let reason = format!("the separator does not fit into tokens of {} bytes", self.item_bytes);
            return Err(FeedError::Plan { reason });
        }
        Ok(Self { separator, ..self })
    }

    /// Rows of all shards.
    pub fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Bytes of a stored token.
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// Which shard holds a row, and the row's place there.
    pub fn locate(&self, row: u64) -> Result<(usize, u64), FeedError> {
        let shard = self.ends.partition_point(|&end| end <= row);
        if shard == self.ends.len() {
            let reason = format!("row {row} was asked for, but the source has {}", self.rows());
            return Err(FeedError::Plan { reason });
        }
        let first = if shard == 0 { 0 } else { self.ends[shard - 1] };
        Ok((shard, row - first))
    }

    /// Whether any of its shards is somewhere else.
    pub fn is_far(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_far)
    }

    /// Says which tokens will be read soon: row, first token, and how many. Shards that are not open yet are opened, some at a time;
    /// whatever goes wrong is said by reading.
    pub fn will_need(&self, wanted: &[(u64, u32, u32)]) {
        let mut by_shard: BTreeMap<usize, Vec<(u64, u32, u32)>> = BTreeMap::new();
        for &(row, start, length) in wanted {
            if let Ok((at, local)) = self.locate(row) {
                if self.shards[at].is_far {
                    by_shard.entry(at).or_default().push((local, start, length));
                }
            }
        }
        self.open_together(by_shard.keys().copied());
        for (at, rows) in by_shard {
            let Ok(shard) = self.shards[at].get() else { continue };
            let range = |(local, start, length): (u64, u32, u32)| {
                let (first, bytes) = match self.shards[at].layout {
                    RowLayout::Fixed { offset, row_bytes } => (offset + local * row_bytes, row_bytes),
                    RowLayout::Ranges => shard.index().row(local).map(|span| (span.offset, span.length))?,
                };
                let end = (u64::from(start) + u64::from(length)) * self.item_bytes as u64;
                let start = u64::from(start) * self.item_bytes as u64;
                // A separator is not there to be fetched.
                Some(first + start.min(bytes)..first + end.min(bytes))
            };
            let ranges: Vec<_> = rows.into_iter().filter_map(range).collect();
            shard.will_need(&ranges);
        }
    }

    /// Opens shards that are not open yet, some at a time; whatever goes wrong is said by reading.
    fn open_together(&self, shards: impl Iterator<Item = usize>) {
        let closed: Vec<usize> = shards.filter(|&at| self.shards[at].opened.get().is_none()).collect();
        std::thread::scope(|scope| {
            for share in closed.chunks(closed.len().div_ceil(OPENERS).max(1)) {
                scope.spawn(move || share.iter().for_each(|&at| drop(self.shards[at].get())));
            }
        });
    }

    /// Fills `into` with the tokens of a row from `start` on; `into` is a whole number of stored tokens.
    pub fn read(&self, row: u64, start: u32, into: &mut [u8]) -> Result<(), FeedError> {
        let (at, local) = self.locate(row)?;
        if matches!(self.shards[at].layout, RowLayout::Fixed { row_bytes: 0, .. }) {
            into.fill(0);
            return Ok(());
        }
        let shard = self.shards[at].get()?;
        let skip = u64::from(start) * self.item_bytes as u64;
        let (offset, bytes) = match self.shards[at].layout {
            RowLayout::Fixed { offset, row_bytes } => (offset + local * row_bytes, row_bytes),
            RowLayout::Ranges => {
                let span = shard.index().row(local).ok_or_else(|| DataError::IndexDamaged {
                    reason: format!("row {local} of `{}` has no range", shard.name()),
                })?;
                (span.offset, span.length)
            }
        };
        let (into, separator) = self.split_separator(bytes, skip, into);
        if let (Some(into), Some(Separator { token, .. })) = (separator, self.separator) {
            into.copy_from_slice(&token.to_le_bytes()[..self.item_bytes]);
        }
        if into.is_empty() {
            return Ok(());
        }
        if skip + into.len() as u64 > bytes {
            let reason =
                format!("row {row} has {bytes} bytes, but {} from byte {skip} on were planned", into.len());
            return Err(FeedError::Plan { reason });
        }
        Ok(shard.read_range_into(offset + skip, into)?)
    }

    /// What of a row of so many stored bytes is read, and the place of the separator if that is read too.
    fn split_separator<'a>(
        &self,
        bytes: u64,
        skip: u64,
        into: &'a mut [u8],
    ) -> (&'a mut [u8], Option<&'a mut [u8]>) {
        let item = self.item_bytes as u64;
        let before = self.separator.map(|separator| bytes.min(u64::from(separator.row_tokens_max) * item));
        match before {
            Some(before) if before > 0 && skip + into.len() as u64 == before + item => {
                let (stored, separator) = into.split_at_mut(into.len() - self.item_bytes);
                (stored, Some(separator))
            }
            _ => (into, None),
        }
    }

    /// Length in stored tokens of every row, in order; reads the indexes only.
    pub fn lengths(&self) -> Result<Vec<u32>, FeedError> {
        self.open_together((0..self.shards.len()).filter(|&at| self.shards[at].is_far));
        let mut lengths = Vec::with_capacity(usize::try_from(self.rows()).unwrap_or(0));
        for lazy in &self.shards {
            let shard = lazy.get()?;
            for row in 0..shard.rows() {
                let bytes = match lazy.layout {
                    RowLayout::Fixed { row_bytes, .. } => row_bytes,
                    RowLayout::Ranges => shard.index().row(row).map_or(0, |span| span.length),
                };
                let count = bytes / self.item_bytes as u64;
                lengths.push(u32::try_from(count).map_err(|_| FeedError::Plan {
                    reason: format!("row {row} of `{}` has {count} tokens, which is too many", shard.name()),
                })?);
            }
        }
        Ok(lengths)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use penstock_io::MemoryFile;

    use super::*;
    use crate::scan::{Format, LineFormat};
    use crate::testing::scan_text;

    /// Documents as lines of text files, whose bytes stand for tokens of `item_bytes` bytes; two shards.
    pub(in crate::feed) fn documents(lines: &[String], item_bytes: usize) -> TokenSource {
        let (first, second) = lines.split_at(lines.len() / 3 + 1);
        TokenSource::new([first, second].map(|part| shard(part, RowLayout::Ranges).0).into(), item_bytes)
            .unwrap()
    }

    /// Equally long lines, terminators included, as fixed rows.
    pub(in crate::feed) fn fixed_rows(lines: &[String], item_bytes: usize) -> TokenSource {
        let layout = RowLayout::Fixed { offset: 0, row_bytes: lines[0].len() as u64 + 1 };
        TokenSource::new(vec![shard(lines, layout).0], item_bytes).unwrap()
    }

    fn shard(lines: &[String], layout: RowLayout) -> (LazyShard, Arc<AtomicU64>) {
        let scanned = scan_text(Format::Lines(LineFormat::Text), &format!("{}\n", lines.join("\n")));
        let opened = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&opened);
        let open = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let file = Arc::new(MemoryFile::new("shard", scanned.raw.clone()));
            Ok(Shard::open(file, Arc::new(scanned.open()))?)
        };
        (LazyShard::new(lines.len() as u64, layout, Box::new(open)), opened)
    }

    fn some_lines() -> Vec<String> {
        (0..40).map(|n| format!("{n:02}").repeat(n % 5 + 1)).collect()
    }

    #[test]
    fn rows_and_parts_of_rows_are_found_across_shards() {
        let (lines, tokens) = (some_lines(), documents(&some_lines(), 2));
        assert_eq!(tokens.rows(), 40);
        let lengths: Vec<u32> = lines.iter().map(|line| line.len() as u32 / 2).collect();
        assert_eq!(tokens.lengths().unwrap(), lengths);
        for (row, line) in lines.iter().enumerate() {
            for start in 0..line.len() / 2 {
                let mut into = vec![0; line.len() - 2 * start];
                tokens.read(row as u64, start as u32, &mut into).unwrap();
                assert_eq!(into, line.as_bytes()[2 * start..]);
            }
        }
    }

    #[test]
    fn what_lies_outside_a_row_is_never_read() {
        let tokens = documents(&some_lines(), 2);
        let refused = |row, start, bytes: usize| {
            matches!(tokens.read(row, start, &mut vec![0; bytes]), Err(FeedError::Plan { .. }))
        };
        assert!(refused(40, 0, 2) && refused(u64::MAX, 0, 2));
        assert!(refused(0, 0, 4) && refused(0, 1, 2) && refused(0, u32::MAX, 2));
        assert!(matches!(TokenSource::new(vec![], 3), Err(FeedError::Plan { .. })));
    }

    #[test]
    fn a_separator_comes_after_every_row_that_has_tokens() {
        let lines = some_lines();
        for row_tokens_max in [1, 3, u32::MAX] {
            let separator = Some(Separator { token: 0x2d7c, row_tokens_max });
            let tokens = documents(&lines, 2).with_separator(separator).unwrap();
            for (row, line) in lines.iter().enumerate() {
                let kept = line.len().min(row_tokens_max.saturating_mul(2) as usize);
                let whole = [&line.as_bytes()[..kept], b"|-"].concat();
                for start in 0..whole.len() / 2 {
                    let mut into = vec![0; whole.len() - 2 * start];
                    tokens.read(row as u64, start as u32, &mut into).unwrap();
                    assert_eq!(into, whole[2 * start..]);
                }
                let beyond = tokens.read(row as u64, 0, &mut vec![0; line.len() + 4]);
                assert!(matches!(beyond, Err(FeedError::Plan { .. })));
            }
        }
        let wide = Some(Separator { token: 1 << 16, row_tokens_max: 1 });
        assert!(documents(&lines, 2).with_separator(wide).is_err());
        let widest = Some(Separator { token: u64::MAX, row_tokens_max: 1 });
        assert!(documents(&lines, 8).with_separator(widest).is_ok());
    }

    #[test]
    fn fixed_rows_have_the_length_of_the_array() {
        let lines: Vec<String> = (0..10).map(|n| format!("row{n:04}")).collect();
        let tokens = fixed_rows(&lines, 4);
        assert_eq!(tokens.lengths().unwrap(), [2; 10]);
        let mut into = [0; 8];
        tokens.read(7, 0, &mut into).unwrap();
        assert_eq!(&into, b"row0007\n");
    }

    #[test]
    fn rows_of_no_bytes_are_zero_and_nothing_is_opened_for_them() {
        let (lazy, opened) = shard(&some_lines(), RowLayout::Fixed { offset: 0, row_bytes: 0 });
        let (tokens, mut into) = (TokenSource::new(vec![lazy], 1).unwrap(), [7]);
        tokens.read(39, 0, &mut into).unwrap();
        assert_eq!((into, opened.load(Ordering::SeqCst)), ([0], 0));
        assert!(tokens.read(40, 0, &mut into).is_err());
    }

    #[test]
    fn a_shard_is_opened_when_it_is_first_touched_and_once() {
        let parts = [shard(&some_lines(), RowLayout::Ranges), shard(&some_lines(), RowLayout::Ranges)];
        let counts: Vec<_> = parts.iter().map(|(_, count)| Arc::clone(count)).collect();
        let tokens = TokenSource::new(parts.map(|(lazy, _)| lazy).into(), 2).unwrap();
        let opened = || [0, 1].map(|at: usize| counts[at].load(Ordering::SeqCst));
        assert_eq!(opened(), [0, 0]);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| tokens.read(41, 0, &mut [0; 2]).unwrap());
            }
        });
        assert_eq!(opened(), [0, 1]);
    }

    #[test]
    fn an_index_of_another_file_is_refused() {
        let (lazy, _) = shard(&some_lines(), RowLayout::Ranges);
        let tokens = TokenSource::new(vec![LazyShard { rows: 41, ..lazy }], 2).unwrap();
        let refused = tokens.read(0, 0, &mut [0; 2]);
        assert!(matches!(refused, Err(FeedError::Data(DataError::IndexDamaged { .. }))));
    }
}
