//! Durations in log-linear buckets: 8 per doubling, so that a quantile is at most an eighth too high, in 2 KiB, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling.
const STEPS: usize = 8;
/// Doublings of a microsecond: up to 2^32 of them, more than an hour.
const DOUBLINGS: usize = 30;
const BUCKETS: usize = STEPS * DOUBLINGS;

/// How often which duration was seen. Any thread may add.
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
        let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].fetch_add(1, Ordering::Relaxed);
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
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(|bucket| Duration::from_micros(end(bucket)))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The first `STEPS` microseconds have buckets of their own; after that each doubling is cut into `STEPS` equal parts.
fn bucket(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let doubling = micros.ilog2() as usize;
    let shift = doubling - STEPS.ilog2() as usize;
    let step = (micros >> shift) as usize - STEPS;
    ((shift + 1) * STEPS + step).min(BUCKETS - 1)
}

/// The largest value of a bucket, in microseconds.
fn end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    (((STEPS + step + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_is_at_most_an_eighth_wide() {
        for micros in (0..5_000).chain([1 << 20, (1 << 30) + 12_345]) {
            let last = end(bucket(micros));
            assert!(last >= micros && last <= micros + micros / 8 + 1, "{micros}: {last}");
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
    fn quantiles_are_those_of_the_values() {
        let seen = Histogram::new();
        assert_eq!(seen.quantile(0.5), None);
        for millis in 1..=100 {
            seen.add(Duration::from_millis(millis));
        }
        let near = |share: f64, millis: f64| {
            let found = seen.quantile(share).unwrap().as_secs_f64() * 1e3;
            assert!(found >= millis && found <= millis * 1.13, "{share}: {found}");
        };
        near(0.5, 50.0);
        near(0.99, 99.0);
        near(1.0, 100.0);
        assert_eq!(seen.count(), 100);
    }
}
