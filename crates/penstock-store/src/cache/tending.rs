//! What people do to a cache: look at it, check all of it, make it smaller, empty it.

use std::path::PathBuf;

use penstock_io::Digest;

use super::HostCache;
use super::evicting::files_in;
use super::names::{FOLDERS, is_whole, object_of, piece_of};
use crate::counts::COUNTS;

/// What a cache holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that are pieces.
    pub pieces: u64,
    /// Files that are whole objects.
    pub objects: u64,
}

/// What checking all of a cache found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were not what their names say; they are gone now.
    pub rotten: Vec<PathBuf>,
}

impl HostCache {
    /// Counts what is there; the ledger is put right by the way.
    pub fn show(&self) -> Shown {
        let mut shown = Shown::default();
        for file in (0..FOLDERS).flat_map(|folder| files_in(self.root(), folder)) {
            shown.bytes += file.bytes;
            if piece_of(&file.path).is_some() { shown.pieces += 1 } else { shown.objects += 1 }
        }
        self.ground().ledger.counted(shown.bytes, shown.pieces + shown.objects);
        shown
    }

    /// Reads everything and drops what is not what its name says. `progress` is told the bytes of each file, and ends the work early by
    /// returning false.
    pub fn verify(&self, progress: &mut dyn FnMut(u64) -> bool) -> Verified {
        let mut verified = Verified::default();
        for file in (0..FOLDERS).flat_map(|folder| files_in(self.root(), folder)) {
            // A file that cannot be read because it is gone was evicted; one that is there and cannot be read is rotten.
            let good = match std::fs::read(&file.path) {
                Ok(content) => match (piece_of(&file.path), object_of(&file.path)) {
                    (Some((key, piece)), _) => is_whole(&key, piece, &content),
                    (None, Some(key)) => Digest::of(&content) == key,
                    (None, None) => true,
                },
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            };
            verified.files += 1;
            verified.bytes += file.bytes;
            if !good {
                self.drop_file(&file.path);
                verified.rotten.push(file.path);
            }
            if !progress(file.bytes) {
                break;
            }
        }
        verified
    }

    /// Removes what was not used for longest until at most `bytes` are left; how many went, or nothing if somebody else is making room.
    pub fn trim(&self, bytes: u64) -> Option<u64> {
        let ground = self.firm_ground().ok()?;
        self.show();
        self.evict_to(&ground, bytes)
    }

    /// Removes all pieces and objects; how many bytes that were.
    pub fn clear(&self) -> u64 {
        let mut freed = 0;
        for file in (0..FOLDERS).flat_map(|folder| files_in(self.root(), folder)) {
            if std::fs::remove_file(&file.path).is_ok() {
                freed += file.bytes;
                COUNTS.cache_evicted.add(1);
            }
        }
        self.show();
        freed
    }
}
