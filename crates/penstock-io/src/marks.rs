//! Which blocks of a file were found good, and of which that may not be true any more.
//!
//! All of it is atomic words, shared by threads without a lock, so that a forked child never inherits a held one. Marks are
//! forgotten as a whole when the file shows a change. A block that was good then is doubtful until it is checked again: bytes of
//! it may have been handed out after they changed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Marks of the blocks of one file.
pub(crate) struct Marks {
    /// One bit per block: found good since marks were last forgotten.
    good: Box<[AtomicU64]>,
    /// One bit per block: was good when marks were forgotten, and has not been found good since.
    doubtful: Box<[AtomicU64]>,
    /// How often marks were forgotten.
    generation: AtomicU64,
}

impl Marks {
    /// Of a file of so many blocks, none of which was checked.
    pub(crate) fn new(blocks: u64) -> Self {
        let words = || (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { good: words(), doubtful: words(), generation: AtomicU64::new(0) }
    }

    /// Whether a block was found good.
    pub(crate) fn is_good(&self, block: u64) -> bool {
        is_set(&self.good, block)
    }

    /// Whether a block was handed out unchecked before a change showed, and not checked since.
    pub(crate) fn is_doubtful(&self, block: u64) -> bool {
        is_set(&self.doubtful, block)
    }

    /// Whether any block is.
    pub(crate) fn has_doubtful(&self) -> bool {
        self.doubtful.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// How many blocks are good.
    pub(crate) fn good_count(&self) -> u64 {
        self.good.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// To be asked before the bytes of a block are read, and given to [`Self::set_good`].
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Marks a block whose bytes, read in that generation, were right. Marks that are forgotten meanwhile stay forgotten: either
    /// this sees the new generation, or whoever forgets sees the mark.
    pub(crate) fn set_good(&self, block: u64, generation: u64) {
        let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
        if self.is_doubtful(block) {
            self.doubtful[word].fetch_and(!bit, Ordering::SeqCst);
        }
        self.good[word].fetch_or(bit, Ordering::SeqCst);
        if self.generation() != generation {
            self.good[word].fetch_and(!bit, Ordering::SeqCst);
            self.doubtful[word].fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Forgets all marks: every block is checked at its next touch.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for (good, doubtful) in self.good.iter().zip(&self.doubtful) {
            let before = good.swap(0, Ordering::SeqCst);
            if before != 0 {
                doubtful.fetch_or(before, Ordering::SeqCst);
            }
        }
    }
}

fn is_set(words: &[AtomicU64], block: u64) -> bool {
    words[(block / 64) as usize].load(Ordering::Relaxed) & (1 << (block % 64)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_good_is_doubtful_until_it_is_checked_again() {
        let marks = Marks::new(130);
        for block in [0, 63, 64, 129] {
            marks.set_good(block, marks.generation());
        }
        assert_eq!((marks.good_count(), marks.has_doubtful()), (4, false));
        marks.forget();
        assert_eq!(marks.good_count(), 0);
        assert!(marks.is_doubtful(129) && !marks.is_doubtful(128));
        marks.set_good(129, marks.generation());
        assert!(marks.is_good(129) && !marks.is_doubtful(129) && marks.has_doubtful());
    }

    #[test]
    fn a_mark_of_bytes_that_were_read_before_marks_were_forgotten_does_not_count() {
        let marks = Marks::new(1);
        let before = marks.generation();
        marks.forget();
        marks.set_good(0, before);
        assert!(!marks.is_good(0) && marks.is_doubtful(0));
    }
}
