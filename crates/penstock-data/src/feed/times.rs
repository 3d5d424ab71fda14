//! Where the time of making batches goes: planning, reading, hashing; summed over threads, and how it is spread over batches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use penstock_io::Histogram;

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

/// What a thread can be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Reading and checking tokens.
    Read,
    /// Finding what stands at positions.
    Plan,
    /// Waiting until a source is measured far enough.
    Measure,
}

/// Times of any number of threads; touched once per batch, and what they do now once per group of rows.
#[derive(Default)]
pub(super) struct StageClock {
    sums: [AtomicU64; 3],
    spread: [Histogram; 3],
    /// How many threads are doing what.
    inside: [AtomicUsize; 3],
}

/// Says that a thread does something until it is dropped.
pub(super) struct Inside<'a>(&'a AtomicUsize);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StageClock {
    /// Adds the times of one batch.
    pub(super) fn add(&self, times: StageTimes) {
        let stages = self.sums.iter().zip(&self.spread);
        for ((sum, spread), time) in stages.zip([times.plan, times.read, times.digest]) {
            sum.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
            spread.add(time);
        }
    }

    /// This thread does something, until what is returned is dropped.
    pub(super) fn enter(&self, doing: Doing) -> Inside<'_> {
        let inside = &self.inside[doing as usize];
        inside.fetch_add(1, Ordering::Relaxed);
        Inside(inside)
    }

    /// What threads do now; of several things the one that may take longest.
    pub(super) fn doing(&self) -> Option<Doing> {
        let busy = |doing: &Doing| self.inside[*doing as usize].load(Ordering::Relaxed) > 0;
        [Doing::Read, Doing::Plan, Doing::Measure].into_iter().find(busy)
    }

    /// The sums so far.
    pub(super) fn times(&self) -> StageTimes {
        let [plan, read, digest] =
            [0, 1, 2].map(|stage: usize| Duration::from_nanos(self.sums[stage].load(Ordering::Relaxed)));
        StageTimes { plan, read, digest }
    }

    /// How the times of batches are spread: planning, reading, hashing.
    pub(super) fn spread(&self) -> &[Histogram; 3] {
        &self.spread
    }
}
