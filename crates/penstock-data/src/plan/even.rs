//! Cutting `0..total` into runs of near-equal length, so that no run is a short rest.
//!
//! A rest would be the one place where an order is worse than elsewhere: a last block of three samples is nearly all
//! padding, and a last window of one block is hardly shuffled. Here all runs have at least the length asked for (where
//! there is that much), and differ by at most one.

use std::ops::Range;

/// `0..total` cut into `parts` runs, the longer ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Even {
    total: u64,
    parts: u64,
}

impl Even {
    /// As many runs as can have `least` items each, but at least one; none when there are no items.
    pub fn at_least(total: u64, least: u64) -> Self {
        let parts = (total / least.max(1)).max(u64::from(total > 0));
        Self { total, parts }
    }

    /// How many items there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many runs there are.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// The items of a run, or `None` when there is no such run.
    pub fn range(&self, part: u64) -> Option<Range<u64>> {
        if part >= self.parts {
            return None;
        }
        let (short, longer) = (self.total / self.parts, self.total % self.parts);
        let start = part * short + part.min(longer);
        Some(start..start + short + u64::from(part < longer))
    }

    /// The run that an item is in, and its place there; `None` when there is no such item.
    pub fn find(&self, item: u64) -> Option<(u64, u64)> {
        if item >= self.total {
            return None;
        }
        let (short, longer) = (self.total / self.parts, self.total % self.parts);
        // No overflow: the longer runs are a part of all items.
        let in_longer = longer * (short + 1);
        if item < in_longer {
            return Some((item / (short + 1), item % (short + 1)));
        }
        let rest = item - in_longer;
        Some((longer + rest / short, rest % short))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: runs partition the items, none is short. Method: walk all runs of any cut and find every item again.
        #[test]
        fn runs_partition_the_items(total in 0..3_000_u64, least in 0..400_u64) {
            let even = Even::at_least(total, least);
            let mut next = 0;
            for part in 0..even.parts() {
                let range = even.range(part).unwrap();
                prop_assert_eq!(range.start, next);
                let length = range.end - range.start;
                prop_assert!(length >= least.min(total) && length <= (2 * least).max(total.min(least)).max(1));
                for item in range.clone() {
                    prop_assert_eq!(even.find(item), Some((part, item - range.start)));
                }
                next = range.end;
            }
            prop_assert_eq!(next, total);
            prop_assert_eq!((even.range(even.parts()), even.find(total)), (None, None));
        }

        /// Goal: nothing overflows. Method: totals up to the largest number.
        #[test]
        fn large_totals_are_cut_too(total in 1..=u64::MAX, least in 1..=u64::MAX, at in any::<u64>()) {
            let even = Even::at_least(total, least);
            let (part, place) = even.find(at % total).unwrap();
            prop_assert_eq!(even.range(part).unwrap().start + place, at % total);
            prop_assert_eq!(even.range(even.parts() - 1).unwrap().end, total);
        }
    }
}
