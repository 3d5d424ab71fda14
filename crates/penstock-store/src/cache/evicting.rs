//! Making room: what was not used for longest goes, a tenth of the limit at a time, folder by folder.
//!
//! One process does it at a time and nobody waits for it. A small cache is looked at as a whole; in a large one, whose files are spread
//! evenly over folders, the oldest quarter of one folder after another goes, so that a round never looks at everything. A file that
//! somebody reads stays readable to him: only its name goes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::HostCache;
use super::ground::{COUNTING, EVICTING, Ground};
use super::ledger::Entry;
use super::names::{FOLDERS, TEMPORARY, object_of, piece_of};
use super::space::disk_of;
use crate::counts::COUNTS;

/// Files up to which the whole cache is looked at.
const WHOLE_FILES_MAX: u64 = 16_384;
/// Age from which a temporary file belongs to nobody.
const STALE: Duration = Duration::from_secs(3_600);

/// A file of the cache.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    used: SystemTime,
}

/// The files of pieces and objects in the folders with a number; sweeps up what killed writers left there.
pub(crate) fn files_in(root: &Path, folder: u64) -> Vec<Cached> {
    let name = format!("{folder:02x}");
    let mut files = Vec::new();
    for kind in ["pieces", "objects"] {
        let Ok(entries) = std::fs::read_dir(root.join(kind).join(&name)) else { continue };
        for entry in entries.flatten() {
            let (path, Ok(status)) = (entry.path(), entry.metadata()) else { continue };
            let used = status.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                if SystemTime::now().duration_since(used).is_ok_and(|age| age > STALE) {
                    let _ = std::fs::remove_file(path);
                }
            } else if status.is_file() && (piece_of(&path).is_some() || object_of(&path).is_some()) {
                files.push(Cached { path, bytes: status.len(), used });
            }
        }
    }
    files
}

impl HostCache {
    /// Counts the directory if the ledger has never been counted or cannot be true, and nobody else is at it.
    pub(crate) fn count_if_doubtful(&self, ground: &Arc<Ground>) {
        let most = disk_of(self.root()).map_or(i64::MAX as u64, |(total, _)| total);
        if ground.ledger.is_counted() && !ground.ledger.is_implausible(Entry::Bytes, most) {
            return;
        }
        if let Ok(Some(_held)) = ground.try_lock(COUNTING) {
            let files: Vec<Cached> = (0..FOLDERS).flat_map(|folder| files_in(self.root(), folder)).collect();
            ground.ledger.counted(files.iter().map(|file| file.bytes).sum(), files.len() as u64);
        }
    }

    pub(crate) fn evict_if_over(&self, ground: &Arc<Ground>) {
        let limit = self.limit_bytes();
        if ground.ledger.get(Entry::Bytes) > limit
            || ground.ledger.is_implausible(Entry::Bytes, i64::MAX as u64)
        {
            self.evict_to(ground, limit - limit / 10);
        }
    }

    /// Removes what was not used for longest until at most `goal` bytes are left; how many went, unless somebody else is at it.
    pub(crate) fn evict_to(&self, ground: &Arc<Ground>, goal: u64) -> Option<u64> {
        let Ok(Some(_held)) = ground.try_lock(EVICTING) else { return None };
        let large = ground.ledger.get(Entry::Files) > WHOLE_FILES_MAX;
        let (mut freed, mut seen) = (0, (0, 0));
        if large {
            let first = ground.ledger.get(Entry::Turn);
            let mut looked_at = 0;
            // One turn through all folders at most.
            while looked_at < FOLDERS && ground.ledger.get(Entry::Bytes) > goal {
                let files = files_in(self.root(), (first + looked_at) % FOLDERS);
                seen =
                    (seen.0 + files.iter().map(|file| file.bytes).sum::<u64>(), seen.1 + files.len() as u64);
                let (count, bytes) = (files.len().div_ceil(4), u64::MAX);
                freed += self.remove_oldest(ground, files, count, bytes);
                looked_at += 1;
            }
            ground.ledger.add(Entry::Turn, looked_at);
            if looked_at < FOLDERS {
                return Some(freed);
            }
            ground.ledger.counted(seen.0 - freed.min(seen.0), ground.ledger.get(Entry::Files).min(seen.1));
        }
        let files: Vec<Cached> = (0..FOLDERS).flat_map(|folder| files_in(self.root(), folder)).collect();
        let total: u64 = files.iter().map(|file| file.bytes).sum();
        ground.ledger.counted(total, files.len() as u64);
        let count = files.len();
        freed += self.remove_oldest(ground, files, count, total.saturating_sub(goal));
        Some(freed)
    }

    /// Removes the oldest files, at most `count` and no more than it takes to free `bytes`; the bytes that went.
    fn remove_oldest(&self, ground: &Ground, mut files: Vec<Cached>, count: usize, bytes: u64) -> u64 {
        files.sort_unstable_by_key(|file| file.used);
        let mut freed = 0;
        for file in files.iter().take(count) {
            if freed >= bytes {
                break;
            }
            if std::fs::remove_file(&file.path).is_ok() {
                freed += file.bytes;
                ground.ledger.subtract(Entry::Bytes, file.bytes);
                ground.ledger.subtract(Entry::Files, 1);
                ground.ledger.add(Entry::Evicted, 1);
                COUNTS.cache_evicted.add(1);
            }
        }
        freed
    }
}
