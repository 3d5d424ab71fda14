//! What all processes of a host count together: bytes and files of the cache, and what happened there. One page, shared by mapping.
//!
//! The page is only an account: a process that is killed between a file and its entry leaves it a little wrong. It is made again from the
//! directory when it is missing or cannot be true, and whenever somebody has looked at all files anyway.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_io::Mapping;

const PAGE: u64 = 4096;
const MAGIC: u64 = 0x5045_4e4c_4544_4731;

/// One number of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Bytes of all files.
    Bytes = 1,
    /// Files.
    Files,
    /// Pieces and objects that were found.
    Hits,
    /// Those that were not.
    Misses,
    /// Files that were removed to make room.
    Evicted,
    /// Files that were not what they should have been, and were dropped.
    Rotten,
    /// Pieces that were not written because there was no room on the disk.
    Skipped,
    /// Bytes that came from origins.
    Fetched,
    /// Which folder is looked at next for something old.
    Turn,
}

/// The shared page of counts of one cache.
pub(crate) struct Ledger {
    words: Words,
}

enum Words {
    Shared(Mapping),
    /// Where the page cannot be shared, each process has its own account.
    Own(Box<[AtomicU64; 16]>),
}

impl Ledger {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .custom_flags(libc::O_NOFOLLOW)
            .open(root.join("ledger"))?;
        if file.metadata()?.len() < PAGE {
            file.set_len(PAGE)?;
            // The page must exist on the disk: writing to a hole of a full one would be the end of the process.
            // SAFETY: an open file.
            let room =
                unsafe { libc::posix_fallocate(std::os::fd::AsRawFd::as_raw_fd(&file), 0, PAGE as i64) };
            if room != 0 {
                return Ok(Self { words: Words::Own(Box::default()) });
            }
        }
        let words = Mapping::shared(&file).map_or_else(|| Words::Own(Box::default()), Words::Shared);
        Ok(Self { words })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        match &self.words {
            Words::Shared(mapping) => &mapping.words()[at],
            Words::Own(words) => &words[at],
        }
    }

    /// Whether it has ever been counted, and by an account that this program understands.
    pub(crate) fn is_counted(&self) -> bool {
        self.word(0).load(Ordering::Acquire) == MAGIC
    }

    /// The directory has this much.
    pub(crate) fn counted(&self, bytes: u64, files: u64) {
        self.word(Entry::Bytes as usize).store(bytes, Ordering::Relaxed);
        self.word(Entry::Files as usize).store(files, Ordering::Relaxed);
        self.word(0).store(MAGIC, Ordering::Release);
    }

    /// The number now; one that fell below nothing is nothing.
    pub(crate) fn get(&self, entry: Entry) -> u64 {
        let number = self.word(entry as usize).load(Ordering::Relaxed);
        if number > i64::MAX as u64 { 0 } else { number }
    }

    /// Whether the number fell below nothing, or is more than `most`.
    pub(crate) fn is_implausible(&self, entry: Entry, most: u64) -> bool {
        self.word(entry as usize).load(Ordering::Relaxed) > most
    }

    pub(crate) fn add(&self, entry: Entry, count: u64) {
        self.word(entry as usize).fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, entry: Entry, count: u64) {
        self.word(entry as usize).fetch_sub(count, Ordering::Relaxed);
    }
}
