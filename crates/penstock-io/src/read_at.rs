//! Reading by position: one trait, the local disk behind it, and a simulated twin whose bytes a test can damage.
//!
//! What is read for the first time is read with `pread`, in large pieces; what was read before and is read again comes from a
//! mapping, which survives a file that shrinks under it (see `mapped`): that too is an error with a name and an offset.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, RwLock};

use crate::mapped::Mapping;
use crate::{IoError, Stamp};

/// Bytes that can be read from any position by any thread.
pub trait ReadAt: Send + Sync {
    /// Length in bytes when it was opened.
    fn len(&self) -> u64;

    /// What errors call it.
    fn name(&self) -> &str;

    /// Fills `into` with the bytes at `offset`, all of them or an error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError>;

    /// The same for bytes that were read before and so are likely to be in memory.
    fn read_again(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_at(offset, into)
    }

    /// Says which bytes will be read soon, in any order. Whoever is far away begins to fetch them, at most as many as it likes, and
    /// returns at once; a disk of this machine does nothing.
    fn will_need(&self, _ranges: &[Range<u64>]) {}

    /// Whether [`Self::will_need`] does anything, so that nobody prepares ranges for nothing.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether what it hands out has matched its registered sums already, so that nobody has to sum it again.
    fn is_checked(&self) -> bool {
        false
    }

    /// What it looks like now, where it can be looked at and bytes may change behind a reader's back.
    fn stamp(&self) -> Option<Stamp> {
        None
    }

    /// Whether its bytes may change and it cannot be looked at, so that nothing is known of a block that was good before.
    fn changes_unseen(&self) -> bool {
        false
    }

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Longer reads are not copied from the mapping: a system call is a small part of them, and pages that were looked at once count as
/// memory of the process for as long as the file is open.
const MAPPED_READ_MAX: usize = 16 << 10;

/// A file on a local disk.
pub struct LocalFile {
    /// Open for reading for as long as this lives.
    file: File,
    /// The path as given, for errors.
    name: String,
    /// Length at opening.
    bytes: u64,
    /// Made when bytes are first read again; nothing where the file cannot be mapped.
    mapping: OnceLock<Option<Mapping>>,
}

impl LocalFile {
    /// Opens a file and remembers its length. A directory is refused.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IoError> {
        let name = path.as_ref().display().to_string();
        let failed = |error: io::Error| IoError::from_system(&name, None, &error);
        let file = File::open(path.as_ref()).map_err(failed)?;
        let status = file.metadata().map_err(failed)?;
        if !status.is_file() {
            return Err(IoError::Other { name, offset: None, reason: "it is not a regular file".into() });
        }
        Ok(Self { file, bytes: status.len(), name, mapping: OnceLock::new() })
    }
}

impl ReadAt for LocalFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        // The system refuses positions past i64::MAX as malformed; to the reader they are past the end like any other.
        if i64::try_from(offset.saturating_add(into.len() as u64)).is_err() {
            return Err(short(&self.name, offset, into.len(), 0));
        }
        let mut got = 0;
        // Each turn reads at least one byte or returns, so there are at most `into.len()` turns; interrupts apart.
        while got < into.len() {
            match self.file.read_at(&mut into[got..], offset + got as u64) {
                Ok(0) => return Err(short(&self.name, offset, into.len(), got)),
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(IoError::from_system(&self.name, Some(offset + got as u64), &error));
                }
            }
        }
        Ok(())
    }

    fn read_again(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        if into.len() > MAPPED_READ_MAX {
            return self.read_at(offset, into);
        }
        match self.mapping.get_or_init(|| Mapping::new(&self.file, self.bytes)) {
            Some(mapping) if mapping.copy(offset, into) => Ok(()),
            // Also what is wrong is said by a plain read: how far the file goes now.
            _ => self.read_at(offset, into),
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        // A file that cannot be looked at is not the same as before; what is wrong with it is said by reading.
        Some(self.file.metadata().map_or(Stamp::MISSING, |status| Stamp::of_file(&status)))
    }
}

/// A file in memory, for tests: the same contract, and bytes that can rot.
#[derive(Debug)]
pub struct MemoryFile {
    /// What errors call it.
    name: String,
    /// Length at making; `truncate` does not change it, just as a real file shrinks behind its reader's back.
    bytes: u64,
    /// The present contents.
    contents: RwLock<Vec<u8>>,
    /// How often they were changed.
    changes: AtomicU64,
}

impl MemoryFile {
    /// A file with these contents.
    pub fn new(name: impl Into<String>, contents: Vec<u8>) -> Self {
        let bytes = contents.len() as u64;
        Self { name: name.into(), bytes, contents: RwLock::new(contents), changes: AtomicU64::new(0) }
    }

    /// Inverts one bit of the contents.
    pub fn flip_bit(&self, byte: u64, bit: u8) {
        self.change(|contents| contents[byte as usize] ^= 1 << (bit % 8));
    }

    /// Cuts the contents to their first `bytes` bytes.
    pub fn truncate(&self, bytes: u64) {
        self.change(|contents| contents.truncate(bytes as usize));
    }

    /// Lets it look changed without a change of its bytes, as `chmod` does.
    pub fn touch(&self) {
        self.change(|_| ());
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.contents.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl ReadAt for MemoryFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let contents = self.contents.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let rest = usize::try_from(offset).ok().and_then(|start| contents.get(start..)).unwrap_or_default();
        let got = rest.len().min(into.len());
        into[..got].copy_from_slice(&rest[..got]);
        if got < into.len() { Err(short(&self.name, offset, into.len(), got)) } else { Ok(()) }
    }

    fn stamp(&self) -> Option<Stamp> {
        Some(Stamp::of_count(self.changes.load(Ordering::SeqCst)))
    }
}

fn short(name: &str, offset: u64, wanted: usize, got: usize) -> IoError {
    IoError::Short { name: name.to_owned(), offset, wanted: wanted as u64, got: got as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the twin keeps the real file's contract. Method: ask both the same questions.
    #[test]
    fn the_local_file_and_its_twin_answer_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shard");
        std::fs::write(&path, b"0123456789").unwrap();
        let local = LocalFile::open(&path).unwrap();
        let memory = MemoryFile::new(local.name(), b"0123456789".to_vec());

        for (offset, wanted) in
            [(0, 10), (3, 4), (9, 1), (10, 0), (8, 4), (11, 1), (i64::MAX as u64, 1), (u64::MAX, 1)]
        {
            let (mut a, mut b) = (vec![0; wanted], vec![0; wanted]);
            assert_eq!(local.read_at(offset, &mut a), memory.read_at(offset, &mut b), "{offset}+{wanted}");
            assert_eq!(a, b);
        }
        assert_eq!((local.len(), memory.len()), (10, 10));
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        assert!(matches!(LocalFile::open(&gone), Err(IoError::NotFound { name }) if name.ends_with("gone")));
        assert!(matches!(LocalFile::open(dir.path()), Err(IoError::Other { .. })));
    }
}
