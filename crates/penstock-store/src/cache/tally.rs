//! What this process has done with pieces, since it began.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of this process. All rise only.
#[derive(Debug, Default)]
pub struct Tally {
    /// Pieces and objects that the host cache had.
    pub hits: AtomicU64,
    /// Those that it did not have.
    pub misses: AtomicU64,
    /// Bytes that came from origins.
    pub fetched_bytes: AtomicU64,
    /// Bytes that were written into the cache.
    pub written_bytes: AtomicU64,
    /// Files that this process removed to make room.
    pub evicted: AtomicU64,
    /// Files of the cache that were not what they should have been.
    pub rotten: AtomicU64,
    /// Pieces that were not written because there was no room on the disk, or none to write.
    pub skipped: AtomicU64,
    /// Flights of others, in this process or not, that were waited for instead of fetching again.
    pub joined: AtomicU64,
    /// Flights of other processes that took too long, so that the piece was fetched twice.
    pub impatient: AtomicU64,
    /// Pieces that came wrong from their origin and were fetched again.
    pub refetched: AtomicU64,
}

/// The tally of this process.
pub static TALLY: Tally = Tally {
    hits: AtomicU64::new(0),
    misses: AtomicU64::new(0),
    fetched_bytes: AtomicU64::new(0),
    written_bytes: AtomicU64::new(0),
    evicted: AtomicU64::new(0),
    rotten: AtomicU64::new(0),
    skipped: AtomicU64::new(0),
    joined: AtomicU64::new(0),
    impatient: AtomicU64::new(0),
    refetched: AtomicU64::new(0),
};

impl Tally {
    /// Every count with its name.
    pub fn values(&self) -> [(&'static str, u64); 10] {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("hits", get(&self.hits)),
            ("misses", get(&self.misses)),
            ("fetched_bytes", get(&self.fetched_bytes)),
            ("written_bytes", get(&self.written_bytes)),
            ("evicted", get(&self.evicted)),
            ("rotten", get(&self.rotten)),
            ("skipped", get(&self.skipped)),
            ("joined", get(&self.joined)),
            ("impatient", get(&self.impatient)),
            ("refetched", get(&self.refetched)),
        ]
    }
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
