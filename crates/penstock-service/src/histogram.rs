//! How long something took, many times over, in a few atomic words: powers of two of a microsecond.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BUCKETS: usize = 40;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    /// Counts one.
    pub(crate) fn add(&self, took: Duration) {
        let bucket = (u64::BITS - (took.as_micros() as u64).leading_zeros()) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The upper end of the bucket below which a share of all lies, in seconds.
    pub(crate) fn quantile_s(&self, share: f64) -> f64 {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut sum = 0;
        for (bucket, count) in counts.iter().enumerate() {
            sum += count;
            if sum >= wanted && sum > 0 {
                return (1_u64 << bucket) as f64 / 1e6;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_factor_of_two() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile_s(0.5), 0.0);
        (1..=1000).for_each(|micros| histogram.add(Duration::from_micros(micros)));
        histogram.add(Duration::from_secs(1 << 40));
        for (share, exact) in [(0.5, 500e-6), (0.99, 990e-6)] {
            let found = histogram.quantile_s(share);
            assert!(found >= exact && found <= 2.1 * exact, "{share}: {found}");
        }
    }
}
