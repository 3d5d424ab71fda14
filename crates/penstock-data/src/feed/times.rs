//! Where the time of making batches goes, summed over threads: planning, reading, hashing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Finding what stands at positions.
    pub plan: Duration,
    /// Reading and checking tokens.
    pub read: Duration,
    /// Digests of rows.
    pub digest: Duration,
}

impl StageTimes {
    /// Adds the times of one row: planning, reading, hashing.
    pub(super) fn add(&mut self, [plan, read, digest]: [Duration; 3]) {
        self.plan += plan;
        self.read += read;
        self.digest += digest;
    }
}

/// Sums times of any number of threads; touched once per batch.
#[derive(Debug, Default)]
pub(super) struct StageClock([AtomicU64; 3]);

impl StageClock {
    /// Adds the times of one batch.
    pub(super) fn add(&self, times: StageTimes) {
        for (sum, time) in self.0.iter().zip([times.plan, times.read, times.digest]) {
            sum.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The sums so far.
    pub(super) fn times(&self) -> StageTimes {
        let [plan, read, digest] =
            [0, 1, 2].map(|stage: usize| Duration::from_nanos(self.0[stage].load(Ordering::Relaxed)));
        StageTimes { plan, read, digest }
    }
}
