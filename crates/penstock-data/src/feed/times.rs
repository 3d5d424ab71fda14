//! Where the time of making batches goes: planning, reading, hashing; summed over threads, and how it is spread over batches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Each power of two is divided into so many parts, so a percentile is at most 6 % off.
const PARTS_BITS: u32 = 3;
const PARTS: usize = 1 << PARTS_BITS;
/// Nanoseconds up to 2^40, which is 18 minutes; longer times count as that.
const POWERS: usize = 40;

/// How long something took, over all times that it was done. Any number of threads may add.
pub struct Histogram(Box<[AtomicU64]>);

impl Default for Histogram {
    fn default() -> Self {
        Self((0..POWERS * PARTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Histogram {
    /// Adds one time.
    pub fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.0.get(bucket(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The time that a share of all times does not pass; zero when there is none.
    pub fn percentile(&self, share: f64) -> Duration {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let wanted = (share * all as f64).ceil().max(1.0) as u64;
        let mut before = 0;
        for (place, count) in counts.iter().enumerate() {
            before += count;
            if before >= wanted {
                return Duration::from_nanos(middle(place));
            }
        }
        Duration::ZERO
    }

    /// How many times were added.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The bucket of a number: its power of two, and the bits that follow the highest.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.clamp(PARTS as u64, (1 << POWERS) - 1);
    let power = nanos.ilog2();
    let part = (nanos >> (power - PARTS_BITS)) as usize & (PARTS - 1);
    power as usize * PARTS + part
}

/// The number in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (power, part) = ((bucket / PARTS) as u32, (bucket % PARTS) as u64);
    let width = 1_u64 << power.saturating_sub(PARTS_BITS);
    (PARTS as u64 + part) * width + width / 2
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_near_those_of_the_sorted_times(times in prop::collection::vec(100..10_000_000_000_u64, 1..200), share in 0.01..1.0_f64) {
            let histogram = Histogram::default();
            times.iter().for_each(|&nanos| histogram.add(Duration::from_nanos(nanos)));
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let wanted = (share * times.len() as f64).ceil().max(1.0) as usize - 1;
            let (found, expected) = (histogram.percentile(share).as_nanos() as f64, sorted[wanted] as f64);
            prop_assert!((found / expected - 1.0).abs() < 0.08, "{} {}", found, expected);
            prop_assert_eq!(histogram.count(), times.len() as u64);
        }
    }

    #[test]
    fn the_shortest_and_the_longest_times_have_a_place() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.99), Duration::ZERO);
        [Duration::ZERO, Duration::MAX].into_iter().for_each(|time| histogram.add(time));
        assert_eq!(histogram.count(), 2);
        assert!(histogram.percentile(0.5) < Duration::from_micros(1));
        assert!(histogram.percentile(1.0) > Duration::from_secs(900));
    }
}
