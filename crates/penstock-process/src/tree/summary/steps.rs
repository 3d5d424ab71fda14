//! How far ranks are, as counts in fixed buckets: the same buckets everywhere, so that counts add up in any order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets between a power of two and the next.
const PARTS: u64 = 8;

/// How many ranks are how far. A bucket is an eighth of the distance between two powers of two; steps below 16 are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepHistogram {
    counts: BTreeMap<u16, u64>,
}

impl StepHistogram {
    /// One more rank at this step.
    pub fn note(&mut self, step: u64) {
        *self.counts.entry(bucket(step)).or_default() += 1;
    }

    /// With the counts of another.
    pub fn merge(mut self, other: &Self) -> Self {
        for (bucket, count) in &other.counts {
            let known = self.counts.entry(*bucket).or_default();
            *known = known.saturating_add(*count);
        }
        self
    }

    /// Nobody has reported a step.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Every bucket that is not empty: its first step, and how many ranks are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().map(|(bucket, count)| (first_step(*bucket), *count))
    }
}

fn bucket(step: u64) -> u16 {
    if step < 2 * PARTS {
        return u16::try_from(step).unwrap_or(u16::MAX);
    }
    let octave = u64::from(step.ilog2());
    let part = (step >> (octave - 3)) & (PARTS - 1);
    u16::try_from((octave - 2) * PARTS + part).unwrap_or(u16::MAX)
}

fn first_step(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 2 * PARTS {
        return bucket;
    }
    let (octave, part) = (bucket / PARTS + 2, bucket % PARTS);
    (PARTS + part).checked_shl(u32::try_from(octave - 3).unwrap_or(u32::MAX)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_in_the_bucket_that_begins_at_or_below_it() {
        let steps =
            (0..5000).chain((1..64).flat_map(|power| [(1u64 << power) - 1, 1 << power])).chain([u64::MAX]);
        for step in steps {
            let first = first_step(bucket(step));
            assert!(first <= step && step - first <= step / PARTS, "{step} is in the bucket of {first}");
            assert_eq!(bucket(first), bucket(step));
        }
    }
}
