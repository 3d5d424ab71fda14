//! Durations in log-linear buckets: 8 per doubling, so that a quantile is at most an eighth too high, in 2.5 KiB, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling.
const STEPS: usize = 8;
/// Doublings of a nanosecond: up to 2^42 of them, more than an hour; longer times count as that.
const DOUBLINGS: usize = 40;
const BUCKETS: usize = STEPS * DOUBLINGS;

/// How often which duration was seen. Any thread may add.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Histogram {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }

    /// One more of this length.
    pub fn add(&self, taken: Duration) {
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The length that a share of all, between 0 and 1, does not exceed; nothing when nothing was seen.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        let index = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        index.map(|bucket| Duration::from_nanos(end(bucket)))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The first `STEPS` nanoseconds have buckets of their own; after that each doubling is cut into `STEPS` equal parts.
fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() as usize;
    let shift = doubling - STEPS.ilog2() as usize;
    let step = (nanos >> shift) as usize - STEPS;
    ((shift + 1) * STEPS + step).min(BUCKETS - 1)
}

/// The largest value of a bucket, in nanoseconds.
fn end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    (((STEPS + step + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_is_at_most_an_eighth_wide() {
        for nanos in (0..5_000).chain([1 << 20, (1 << 30) + 12_345]) {
            let last = end(bucket(nanos));
            assert!(last >= nanos && last <= nanos + nanos / 8 + 1, "{nanos}: {last}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for number in 0..BUCKETS - 1 {
            assert_eq!(bucket(end(number) + 1), number + 1);
        }
    }

    #[test]
    fn the_shortest_and_the_longest_times_have_a_place() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.99), None);
        [Duration::ZERO, Duration::MAX].into_iter().for_each(|time| histogram.add(time));
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (2, Some(Duration::ZERO)));
        assert!(histogram.quantile(1.0) > Some(Duration::from_secs(3600)));
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_an_eighth_above_those_of_the_sorted_times(
            times in prop::collection::vec(0..10_000_000_000_u64, 1..200), share in 0.01..1.0_f64
        ) {
            let histogram = Histogram::new();
            times.iter().for_each(|&nanos| histogram.add(Duration::from_nanos(nanos)));
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let exact = sorted[(share * times.len() as f64).ceil().max(1.0) as usize - 1];
            let estimate = histogram.quantile(share).map_or(0, |time| time.as_nanos() as u64);
            prop_assert!(estimate >= exact && estimate <= exact + exact / 8 + 1, "{} {}", estimate, exact);
            prop_assert_eq!(histogram.count(), times.len() as u64);
        }
    }
}
