//! A file whose bytes are handed out only after their block has matched its registered sum.
//!
//! The first touch of a block reads all of it, sums it and compares; a bit in an atomic map then remembers, and later
//! touches are plain reads. Threads share the map without locks: two that meet on a block both check it, which costs time
//! and nothing else. A file of a disk is looked at again while it is read (`looks`): a change that shows forgets the map, so that
//! every block is checked at its next touch, and only bytes that differ are an error.

use std::ops::Range;
use std::sync::Arc;

use crate::looks::{Looks, WatchedFile, now_ms};
use crate::{BLOCK_BYTES, IoError, ReadAt, block_count, block_sum};

/// Where registered block sums come from; usually a column of an index that is left where it lies.
pub trait BlockSums: Send + Sync {
    /// Length in bytes of the registered file.
    fn file_bytes(&self) -> u64;

    /// The sum of block `block`, or nothing where the table does not reach.
    fn sum(&self, block: u64) -> Option<u64>;
}

impl BlockSums for (u64, Vec<u64>) {
    fn file_bytes(&self) -> u64 {
        self.0
    }

    fn sum(&self, block: u64) -> Option<u64> {
        self.1.get(usize::try_from(block).ok()?).copied()
    }
}

/// A file, the sums it was registered with, and which blocks have been found good since it was opened or last changed.
pub struct CheckedFile {
    /// Where the bytes come from, with marks of good blocks; the queue of looks knows it too.
    watched: Arc<WatchedFile>,
    /// What the bytes should be.
    sums: Arc<dyn BlockSums>,
    /// Whether the file hands out bytes only after checking them against the same sums.
    checks_itself: bool,
    /// Whether a block is checked every time, because a change would not show.
    checks_always: bool,
}

/// One stretch of a file that is not as registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// First byte of the stretch: a block boundary.
    pub offset: u64,
    /// Length of the stretch.
    pub bytes: u64,
    /// In which way it differs.
    pub kind: DamageKind,
}

/// In which way a stretch of a file differs from what was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageKind {
    /// The bytes are there and are not the registered ones.
    Changed,
    /// The file ends before or inside this stretch.
    Missing,
    /// The file goes on here, past its registered end.
    Extra,
    /// The store refuses to read here; its words are kept.
    Unreadable(String),
}

impl CheckedFile {
    /// Pairs a file with its sums. A file of another length is refused before a byte is read.
    pub fn new(file: Arc<dyn ReadAt>, sums: Arc<dyn BlockSums>) -> Result<Self, IoError> {
        let (expected, found) = (sums.file_bytes(), file.len());
        if expected != found {
            return Err(IoError::SizeChanged { name: file.name().to_owned(), expected, found });
        }
        let (checks_itself, checks_always) = (file.is_checked(), file.changes_unseen());
        let watched = Arc::new(WatchedFile::new(file, expected, now_ms()));
        Ok(Self { watched, sums, checks_itself, checks_always })
    }

    /// What errors call the file.
    pub fn name(&self) -> &str {
        self.watched.file.name()
    }

    /// Registered length in bytes.
    pub fn bytes(&self) -> u64 {
        self.sums.file_bytes()
    }

    /// Says which bytes will be read soon.
    pub fn will_need(&self, ranges: &[Range<u64>]) {
        self.watched.file.will_need(ranges);
    }

    /// Whether saying so does anything.
    pub fn is_far(&self) -> bool {
        self.watched.file.is_far()
    }

    /// How many blocks have been found good so far; a file that checks itself does not say.
    pub fn blocks_good(&self) -> u64 {
        self.watched.marks.good_count()
    }

    /// The bytes at `offset`, checked.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, IoError> {
        self.within(offset, bytes as u64)?;
        let mut into = vec![0; bytes];
        self.read_into(offset, &mut into)?;
        Ok(into)
    }

    /// Fills `into` with the bytes at `offset`, checked.
    pub fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_into_at(offset, into, now_ms())
    }

    /// The same at a time.
    fn read_into_at(&self, offset: u64, into: &mut [u8], now_ms: u64) -> Result<(), IoError> {
        let end = self.within(offset, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        if self.checks_itself {
            return self.watched.file.read_at(offset, into);
        }
        if self.watched.is_due(now_ms) {
            Looks::of_process().look(&self.watched, now_ms);
        }
        let mut at = offset;
        while at < end {
            let good = self.is_good(at / BLOCK_BYTES);
            let mut next = (at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(end);
            if good {
                // Neighbouring good blocks are one read.
                while next < end && self.is_good(next / BLOCK_BYTES) {
                    next = (next + BLOCK_BYTES).min(end);
                }
            }
            let piece = &mut into[(at - offset) as usize..(next - offset) as usize];
            if good {
                self.watched.hand_out();
                self.watched.file.read_again(at, piece)?
            } else {
                self.read_unchecked_block(at, piece)?
            }
            at = next;
        }
        Ok(())
    }

    /// Checks the block that holds `piece`, which begins at byte `at` and does not leave the block. What is wrong with a block that was
    /// good before a change showed comes with the steps that got bytes of the file meanwhile.
    fn read_unchecked_block(&self, at: u64, piece: &mut [u8]) -> Result<(), IoError> {
        let block = at / BLOCK_BYTES;
        self.check_block(block, at, piece).map_err(|problem| {
            let doubted = self.watched.marks.is_doubtful(block).then(|| self.watched.doubted.get());
            match doubted.flatten() {
                Some(steps) => IoError::Delivered { problem: Box::new(problem), steps },
                None => problem,
            }
        })
    }

    fn check_block(&self, block: u64, at: u64, piece: &mut [u8]) -> Result<(), IoError> {
        let generation = self.watched.marks.generation();
        let range = block_range(block, self.bytes());
        if piece.len() as u64 == range.end - range.start {
            self.watched.file.read_at(at, piece)?;
            self.compare(block, range.start, piece)?;
        } else {
            let mut whole = vec![0; (range.end - range.start) as usize];
            self.watched.file.read_at(range.start, &mut whole)?;
            self.compare(block, range.start, &whole)?;
            let skip = (at - range.start) as usize;
            piece.copy_from_slice(&whole[skip..skip + piece.len()]);
        }
        if !self.checks_always {
            self.watched.marks.set_good(block, generation);
        }
        Ok(())
    }

    fn compare(&self, block: u64, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        let found = block_sum(bytes);
        match self.sums.sum(block) {
            Some(expected) if expected == found => Ok(()),
            expected => {
                let name = self.name().to_owned();
                Err(IoError::Corrupt { name, offset, expected: expected.unwrap_or(0), found })
            }
        }
    }

    /// Reads every block again, whatever was found before, and returns all damage. `progress` is told the bytes done
    /// after each block, and ends the work early by returning false.
    pub fn verify_all(&self, progress: &mut dyn FnMut(u64) -> bool) -> Vec<Damage> {
        verify_blocks(&*self.watched.file, &*self.sums, 0..block_count(self.bytes()), progress)
    }

    fn is_good(&self, block: u64) -> bool {
        self.watched.marks.is_good(block)
    }

    fn within(&self, offset: u64, bytes: u64) -> Result<u64, IoError> {
        let end = offset.saturating_add(bytes);
        if end > self.bytes() {
            return Err(IoError::Beyond { name: self.name().to_owned(), offset, end, bytes: self.bytes() });
        }
        Ok(end)
    }
}

/// Compares the blocks of `range` with their sums and returns every stretch that differs, joined where they touch.
///
/// Works on a file of any length, so that a truncated file has its damage listed instead of being refused. Several
/// threads may share a file by ranges; the thread with the last block also reports bytes past the registered end.
pub fn verify_blocks(
    file: &dyn ReadAt,
    sums: &dyn BlockSums,
    range: Range<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Vec<Damage> {
    let (registered, blocks) = (sums.file_bytes(), block_count(sums.file_bytes()));
    let mut damage = Vec::new();
    let mut buffer = vec![0; BLOCK_BYTES as usize];
    for block in range.start..range.end.min(blocks) {
        let bytes = block_range(block, registered);
        let piece = &mut buffer[..(bytes.end - bytes.start) as usize];
        let kind = match file.read_at(bytes.start, piece) {
            Ok(()) => (sums.sum(block) != Some(block_sum(piece))).then_some(DamageKind::Changed),
            Err(IoError::Short { .. }) => Some(DamageKind::Missing),
            Err(error) => Some(DamageKind::Unreadable(error.to_string())),
        };
        if let Some(kind) = kind {
            join(&mut damage, Damage { offset: bytes.start, bytes: bytes.end - bytes.start, kind });
        }
        if !progress(bytes.end - bytes.start) {
            return damage;
        }
    }
    if range.end >= blocks && file.len() > registered {
        join(
            &mut damage,
            Damage { offset: registered, bytes: file.len() - registered, kind: DamageKind::Extra },
        );
    }
    damage
}

fn block_range(block: u64, file_bytes: u64) -> Range<u64> {
    let start = block * BLOCK_BYTES;
    start..(start + BLOCK_BYTES).min(file_bytes)
}

/// Appends `next`, or lengthens the last stretch when `next` continues it in the same way.
fn join(damage: &mut Vec<Damage>, next: Damage) {
    match damage.last_mut() {
        Some(last) if last.kind == next.kind && last.offset + last.bytes == next.offset => {
            last.bytes += next.bytes
        }
        _ => damage.push(next),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{MemoryFile, ReaderStep};

    const FILE_BYTES: usize = 200_000;

    fn contents() -> Vec<u8> {
        (0..FILE_BYTES).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    fn sums() -> Arc<(u64, Vec<u64>)> {
        Arc::new((FILE_BYTES as u64, contents().chunks(BLOCK_BYTES as usize).map(block_sum).collect()))
    }

    fn file() -> (Arc<MemoryFile>, CheckedFile) {
        let memory = Arc::new(MemoryFile::new("shard", contents()));
        (memory.clone(), CheckedFile::new(memory, sums()).unwrap())
    }

    #[test]
    fn a_block_is_checked_on_first_touch_only() {
        let (memory, checked) = file();
        assert_eq!(checked.read(70_000, 10).unwrap(), contents()[70_000..70_010]);
        assert_eq!(checked.blocks_good(), 1);
        memory.flip_bit(70_001, 3);
        assert!(checked.read(70_000, 10).is_ok());
        memory.flip_bit(5, 0);
        let corrupt = checked.read(60_000, 10_000).unwrap_err();
        assert!(matches!(corrupt, IoError::Corrupt { offset: 0, expected, found, .. } if expected != found));
    }

    /// Reads one byte for a step, some milliseconds after opening.
    fn read_later(checked: &CheckedFile, offset: u64, step: u64, later_ms: u64) -> Result<u8, IoError> {
        let _step = ReaderStep::enter(step);
        let mut into = [0];
        checked.read_into_at(offset, &mut into, now_ms() + later_ms).map(|()| into[0])
    }

    #[test]
    fn a_byte_that_changes_later_is_found_by_the_next_look_with_the_steps_that_got_it() {
        let (memory, checked) = file();
        for step in 0..3 {
            assert_eq!(read_later(&checked, 70_000, step, 0), Ok(contents()[70_000]));
        }
        assert!(read_later(&checked, 70_000, 3, 5_000).is_ok());
        memory.flip_bit(70_000, 0);
        assert!(read_later(&checked, 70_000, 4, 5_500).is_ok(), "within a second nobody looks");
        let delivered = read_later(&checked, 70_000, 5, 10_000).unwrap_err();
        let IoError::Delivered { problem, steps } = delivered else { panic!("{delivered}") };
        assert!(matches!(*problem, IoError::Corrupt { offset: 65_536, .. }));
        assert_eq!(steps, 3..=4);
        assert!(read_later(&checked, 70_000, 5, 10_001).is_err(), "it stays wrong");
        assert!(read_later(&checked, 0, 5, 10_001).is_ok(), "other blocks are as registered");
        memory.flip_bit(70_000, 0);
        assert!(read_later(&checked, 70_000, 5, 20_000).is_ok(), "and is read again when it is mended");
    }

    #[test]
    fn a_change_of_no_byte_raises_nothing_and_a_block_that_was_never_read_names_no_steps() {
        let (memory, checked) = file();
        assert!(read_later(&checked, 0, 0, 0).is_ok());
        memory.touch();
        assert_eq!(read_later(&checked, 0, 1, 5_000), Ok(contents()[0]));
        assert_eq!((checked.blocks_good(), read_later(&checked, 0, 1, 5_001)), (1, Ok(contents()[0])));
        memory.flip_bit(140_000, 1);
        assert!(matches!(read_later(&checked, 140_000, 2, 9_000), Err(IoError::Corrupt { .. })));
        memory.truncate(100);
        assert!(matches!(read_later(&checked, 0, 3, 15_000), Err(IoError::Delivered { problem, .. })
            if matches!(*problem, IoError::Short { .. })));
    }

    #[test]
    fn a_file_of_another_length_is_refused() {
        let short = Arc::new(MemoryFile::new("shard", contents()[..10].to_vec()));
        let refused = CheckedFile::new(short, sums()).err();
        assert_eq!(
            refused,
            Some(IoError::SizeChanged { name: "shard".into(), expected: 200_000, found: 10 })
        );
    }

    #[test]
    fn a_file_that_shrinks_later_is_short_and_a_wild_range_is_beyond() {
        let (memory, checked) = file();
        memory.truncate(100_000);
        assert!(matches!(checked.read(99_999, 2), Err(IoError::Short { offset: 65_536, .. })));
        assert!(matches!(checked.read(u64::MAX, 2), Err(IoError::Beyond { .. })));
        assert!(matches!(checked.read(0, FILE_BYTES + 1), Err(IoError::Beyond { .. })));
        assert!(checked.read(FILE_BYTES as u64, 0).unwrap().is_empty());
    }

    #[test]
    fn all_damage_is_listed_with_exact_ranges() {
        let (memory, checked) = file();
        assert_eq!(checked.verify_all(&mut |_| true), []);
        memory.flip_bit(1, 1);
        memory.flip_bit(65_536, 1);
        memory.truncate(196_700);
        let mut done = 0;
        let damage = checked.verify_all(&mut |bytes| {
            done += bytes;
            true
        });
        assert_eq!(done, FILE_BYTES as u64);
        assert_eq!(
            damage,
            [
                Damage { offset: 0, bytes: 131_072, kind: DamageKind::Changed },
                Damage { offset: 196_608, bytes: 3_392, kind: DamageKind::Missing },
            ]
        );
        let longer = MemoryFile::new("shard", [contents(), vec![0; 7]].concat());
        let extra = verify_blocks(&longer, &*sums(), 3..4, &mut |_| true);
        assert_eq!(extra, [Damage { offset: 200_000, bytes: 7, kind: DamageKind::Extra }]);
    }

    #[test]
    fn many_threads_read_the_same_bytes() {
        let (_, checked) = file();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let checked = &checked;
                scope.spawn(move || {
                    for step in 0..500 {
                        let at = (thread * 7_919 + step * 397) % (FILE_BYTES as u64 - 300);
                        let (from, to) = (at as usize, at as usize + 300);
                        assert_eq!(checked.read(at, 300).unwrap(), contents()[from..to]);
                    }
                });
            }
        });
        assert_eq!(checked.blocks_good(), 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn one_flipped_bit_is_always_found(byte in 0..FILE_BYTES as u64, bit in 0u8..8) {
            let (memory, checked) = file();
            memory.flip_bit(byte, bit);
            let block = byte / BLOCK_BYTES * BLOCK_BYTES;
            let problem = checked.read(0, FILE_BYTES).unwrap_err();
            let hit = matches!(problem, IoError::Corrupt { offset, .. } if offset == block);
            prop_assert!(hit);
            let damage = checked.verify_all(&mut |_| true);
            prop_assert_eq!(damage.len(), 1);
            prop_assert_eq!(damage[0].offset, block);
        }
    }
}
