//! The host cache: verified pieces of far objects in a directory, shared by all processes of a host. Deleting it changes speed only.
//!
//! Every file is named by its content and made whole or not at all (`writing`), so a kill at any instant leaves nothing behind and two
//! writers cannot disagree. Who fetches what is settled by locks that the kernel takes back (`ground`), with bounded patience. How much
//! there is stands in a shared page (`ledger`) that is made again from the directory when it cannot be true. What is open or mapped stays
//! readable when it is evicted, because evicting is unlinking (`evicting`).

mod chosen;
mod evicting;
pub(crate) mod forks;
mod ground;
mod ledger;
mod names;
pub mod notices;
mod objects;
mod space;
mod tending;
mod writing;

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use penstock_io::Digest;

use crate::counts::COUNTS;
pub use chosen::{choose, chosen_for};
use ground::{Ground, Held, place_of};
pub use ledger::Entry;
use names::{file_bytes, piece_hash, piece_path, trailer};
pub use notices::{Notice, listen};
pub use space::{Share, disk_of};
pub use tending::{Shown, Verified};
use writing::write_new;

/// How old the time of a file may be before a reader renews it.
const TOUCH_AFTER: Duration = Duration::from_secs(60);
/// How long others are waited for after one of them was waited for in vain.
const SHORT_PATIENCE: Duration = Duration::from_millis(50);
/// How long that lasts.
const IMPATIENT_FOR: Duration = Duration::from_secs(60);

/// Where a cache is, and how much it may take.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory.
    pub root: PathBuf,
    /// Bytes that it may hold.
    pub limit_bytes: u64,
    /// Bytes of the disk that are left free, whatever the limit.
    pub reserve_bytes: u64,
    /// Whether somebody named this directory; only then may it belong to another user.
    pub is_explicit: bool,
    /// How long a fetch of another process is waited for.
    pub patience: Duration,
    /// How long nothing is written after the disk was found full.
    pub pause: Duration,
}

impl Options {
    /// A directory that somebody named, with the usual times and without a reserve.
    pub fn new(root: impl Into<PathBuf>, limit_bytes: u64) -> Self {
        Self {
            root: root.into(),
            limit_bytes,
            reserve_bytes: 0,
            is_explicit: true,
            patience: Duration::from_secs(10),
            pause: Duration::from_secs(30),
        }
    }
}

/// Why a directory cannot be used as a cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}` cannot be the host cache: {reason}")]
pub struct CacheUnusable {
    /// The directory.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

/// One directory of verified pieces, as this process uses it.
pub struct HostCache {
    options: Options,
    /// What is open of the directory; another one after a fork, and after the directory was removed.
    ground: ArcSwap<Ground>,
    /// Times below are milliseconds since this.
    begun: Instant,
    /// Until when nothing is written.
    paused_until_ms: AtomicU64,
    /// Until when other processes are waited for only shortly.
    impatient_until_ms: AtomicU64,
    /// Whether somebody was told that the disk is full, since it last was not.
    full_told: AtomicBool,
}

/// Whether a piece is to be fetched by us.
pub(crate) enum Claim {
    /// By us; nobody else does while this lives. Without a lock where locks cannot be had.
    Ours(#[allow(dead_code, reason = "held until the piece is written")] Option<Held>),
    /// Somebody is fetching it.
    Theirs,
}

impl HostCache {
    /// Opens a directory as a cache; makes it if there is none.
    pub fn open(options: Options) -> Result<Arc<Self>, CacheUnusable> {
        let unusable = |reason: String| CacheUnusable { place: options.root.display().to_string(), reason };
        let ground = Ground::open(&options.root).map_err(|error| unusable(error.to_string()))?;
        let owner = std::fs::metadata(&options.root).map_err(|error| unusable(error.to_string()))?.uid();
        // SAFETY: only asks.
        let us = unsafe { libc::geteuid() };
        if owner != us && !options.is_explicit {
            return Err(unusable(format!("it belongs to user {owner}, and we are {us}")));
        }
        let cache = Self {
            ground: ArcSwap::from_pointee(ground),
            begun: Instant::now(),
            paused_until_ms: AtomicU64::new(0),
            impatient_until_ms: AtomicU64::new(0),
            full_told: AtomicBool::new(false),
            options,
        };
        cache.count_if_doubtful(&cache.ground.load_full());
        Ok(Arc::new(cache))
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// Bytes that it may hold.
    pub fn limit_bytes(&self) -> u64 {
        self.options.limit_bytes
    }

    /// A number of the ledger.
    pub fn ledger(&self, entry: Entry) -> u64 {
        self.ground().ledger.get(entry)
    }

    /// What is open of the directory; in a child of a fork, its own.
    fn ground(&self) -> Arc<Ground> {
        let current = self.ground.load_full();
        if current.generation == forks::generation() {
            return current;
        }
        if let Ok(ground) = Ground::open(&self.options.root) {
            let fresh = Arc::new(ground);
            self.ground.store(Arc::clone(&fresh));
            // The child has closed its descriptor already.
            std::mem::forget(current);
            return fresh;
        }
        current
    }

    /// The same, after looking whether the directory is still there.
    fn firm_ground(&self) -> io::Result<Arc<Ground>> {
        let current = self.ground();
        if current.stands(&self.options.root) {
            return Ok(current);
        }
        let fresh = Arc::new(Ground::open(&self.options.root)?);
        self.ground.store(Arc::clone(&fresh));
        self.count_if_doubtful(&fresh);
        Ok(fresh)
    }

    /// The file of a piece of `bytes` bytes, if the cache has it in its full length.
    pub(crate) fn find(&self, key: &Digest, piece: u64, bytes: u64) -> Option<File> {
        let path = piece_path(&self.options.root, key, piece);
        let file = open_to_read(&path).ok()?;
        let status = file.metadata().ok()?;
        if status.len() != file_bytes(bytes) || !status.is_file() {
            self.drop_rotten(key, piece);
            return None;
        }
        let age = status.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        if age.is_some_and(|age| age > TOUCH_AFTER) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(file)
    }

    /// Counts that a piece or an object was found, or not.
    pub(crate) fn count_found(&self, hit: bool) {
        let count = if hit { &COUNTS.cache_hits } else { &COUNTS.cache_misses };
        count.add(1);
        self.ground().ledger.add(if hit { Entry::Hits } else { Entry::Misses }, 1);
    }

    /// Adds to a number of the ledger.
    pub(crate) fn count(&self, entry: Entry, count: u64) {
        self.ground().ledger.add(entry, count);
    }

    /// Somebody still reads a piece that was opened long ago.
    pub(crate) fn touch(&self, key: &Digest, piece: u64) {
        if let Ok(file) = open_to_read(&piece_path(&self.options.root, key, piece)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Settles whether we fetch a piece.
    pub(crate) fn claim(&self, key: &Digest, piece: u64) -> Claim {
        let at = place_of(piece_hash(key, piece));
        match self.firm_ground().and_then(|ground| ground.try_lock(at)) {
            Ok(Some(held)) => Claim::Ours(Some(held)),
            Ok(None) => Claim::Theirs,
            Err(_) => Claim::Ours(None),
        }
    }

    /// How long a fetch of another process is waited for now.
    pub(crate) fn patience(&self) -> Duration {
        if self.now_ms() < self.impatient_until_ms.load(Ordering::Relaxed) {
            return SHORT_PATIENCE.min(self.options.patience);
        }
        self.options.patience
    }

    /// Somebody was waited for in vain: the next ones are waited for only shortly, for a while.
    pub(crate) fn lose_patience(&self) {
        COUNTS.flights_impatient.add(1);
        self.impatient_until_ms.store(self.now_ms() + IMPATIENT_FOR.as_millis() as u64, Ordering::Relaxed);
    }

    /// Keeps a piece whose bytes and sums have been checked; its file, or nothing where it could not be written.
    pub(crate) fn keep(&self, key: &Digest, piece: u64, data: &[u8], sums: &[u64]) -> Option<File> {
        let trailer = trailer(key, piece, data.len() as u64, sums);
        self.write(&piece_path(&self.options.root, key, piece), &[data, &trailer])
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> Option<File> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if self.now_ms() < self.paused_until_ms.load(Ordering::Relaxed) {
            self.skip();
            return None;
        }
        if bytes > self.options.limit_bytes {
            return None;
        }
        if let Some(left) = space::free_bytes(&self.options.root) {
            if left < bytes + self.options.reserve_bytes {
                self.pause(&format!(
                    "{left} bytes are free, of which {} are kept",
                    self.options.reserve_bytes
                ));
                return None;
            }
        }
        let written = self.firm_ground().and_then(|ground| Ok((write_new(path, parts)?, ground)));
        match written {
            Ok((written, ground)) => {
                self.full_told.store(false, Ordering::Relaxed);
                if written.is_new {
                    COUNTS.cache_written_bytes.add(bytes);
                    ground.ledger.add(Entry::Bytes, bytes);
                    ground.ledger.add(Entry::Files, 1);
                    self.evict_if_over(&ground);
                }
                Some(written.file)
            }
            Err(error) => {
                self.pause(&error.to_string());
                None
            }
        }
    }

    fn skip(&self) {
        COUNTS.cache_skipped.add(1);
        self.ground().ledger.add(Entry::Skipped, 1);
    }

    /// Nothing is written for a while; somebody is told the first time.
    fn pause(&self, reason: &str) {
        self.skip();
        let until = self.now_ms() + self.options.pause.as_millis() as u64;
        self.paused_until_ms.store(until, Ordering::Relaxed);
        if !self.full_told.swap(true, Ordering::Relaxed) {
            notices::tell("cache.full", self.options.root.display(), reason);
        }
    }

    /// Removes a piece that is not what it should be.
    pub(crate) fn drop_rotten(&self, key: &Digest, piece: u64) {
        self.drop_file(&piece_path(&self.options.root, key, piece));
    }

    fn drop_file(&self, path: &Path) {
        let bytes = std::fs::metadata(path).map_or(0, |status| status.len());
        if std::fs::remove_file(path).is_ok() {
            let ledger = &self.ground().ledger;
            ledger.subtract(Entry::Bytes, bytes);
            ledger.subtract(Entry::Files, 1);
            ledger.add(Entry::Rotten, 1);
            COUNTS.cache_rotten.add(1);
            notices::tell("cache.rotten", path.display(), "it is not what was written; dropped");
        }
    }

    fn now_ms(&self) -> u64 {
        // One more than the time, so that a time of nothing has always passed.
        self.begun.elapsed().as_millis() as u64 + 1
    }
}

fn open_to_read(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

#[cfg(test)]
mod tests;
