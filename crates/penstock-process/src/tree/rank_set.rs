//! A set of ranks as ranges: a few bytes for a million of them, as long as they stand together.

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More ranges than these are cut: at most 16 bytes each, they are 64 KiB of text.
pub const RANGES_MAX: usize = 4096;

/// Ranks, or host ranks. Exact up to [`RANGES_MAX`] ranges; beyond that the highest are left out, and it says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankSet {
    /// In order, apart from each other, none empty.
    ranges: Vec<Range<u32>>,
    /// How many ranks were left out.
    left_out: u64,
}

impl RankSet {
    /// Of one rank.
    pub fn one(rank: u32) -> Self {
        Self::of(rank..rank.saturating_add(1))
    }

    /// Of ranks that stand together.
    pub fn of(ranks: Range<u32>) -> Self {
        let ranges = if ranks.is_empty() { Vec::new() } else { vec![ranks] };
        Self { ranges, left_out: 0 }
    }

    /// How many ranks it has, those that were left out included.
    pub fn count(&self) -> u64 {
        let known = self.ranges.iter().map(|range| u64::from(range.end - range.start));
        known.sum::<u64>().saturating_add(self.left_out)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.left_out == 0
    }

    /// Whether ranks were left out.
    pub fn is_cut(&self) -> bool {
        self.left_out > 0
    }

    /// Its ranges, in order.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Whether it has a rank; one that was left out is not found.
    pub fn contains(&self, rank: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= rank);
        after.checked_sub(1).is_some_and(|place| self.ranges[place].contains(&rank))
    }

    /// The ranks below a number that it does not have, as ranges in order.
    pub fn gaps(&self, below: u32) -> Vec<Range<u32>> {
        let mut found = Vec::new();
        let mut next = 0;
        for range in self.ranges.iter().cloned().chain(std::iter::once(below..below)) {
            let gap = next..range.start.min(below);
            found.extend((!gap.is_empty()).then_some(gap));
            next = next.max(range.end);
        }
        found
    }

    /// The lowest ranks below a number that it does not have; at most so many.
    pub fn missing(&self, below: u32, most: usize) -> Vec<u32> {
        self.gaps(below).into_iter().flatten().take(most).collect()
    }

    /// Whether both have a rank, as far as they are known.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(one), Some(two)) = (mine.peek(), theirs.peek()) {
            if one.end <= two.start {
                mine.next();
            } else if two.end <= one.start {
                theirs.next();
            } else {
                return true;
            }
        }
        false
    }

    /// The ranks of both.
    pub fn union(&self, other: &Self) -> Self {
        let (mut mine, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut ranges: Vec<Range<u32>> = Vec::with_capacity(self.ranges.len() + other.ranges.len());
        let first = |one: &&Range<u32>, two: &&Range<u32>| (one.start, one.end) <= (two.start, two.end);
        while let Some(range) = match (mine.peek(), theirs.peek()) {
            (Some(one), Some(two)) if first(one, two) => mine.next(),
            (_, Some(_)) => theirs.next(),
            (_, None) => mine.next(),
        } {
            let range = range.clone();
            match ranges.last_mut().filter(|last| last.end >= range.start) {
                Some(last) => last.end = last.end.max(range.end),
                None => ranges.push(range),
            }
        }
        let beyond = ranges.split_off(ranges.len().min(RANGES_MAX));
        let beyond: u64 = beyond.iter().map(|range| u64::from(range.end - range.start)).sum();
        let left_out = self.left_out.saturating_add(other.left_out).saturating_add(beyond);
        Self { ranges, left_out }
    }
}

impl RankSet {
    /// The ranks of this set that another does not have; those that were left out are taken for different ones.
    pub fn minus(&self, other: &Self) -> Self {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let mut taken = other.ranges.iter().peekable();
        for range in &self.ranges {
            let mut start = range.start;
            while taken.peek().is_some_and(|gone| gone.end <= start) {
                taken.next();
            }
            for gone in taken.clone().take_while(|gone| gone.start < range.end) {
                if gone.start > start {
                    ranges.push(start..gone.start);
                }
                start = start.max(gone.end);
            }
            if start < range.end {
                ranges.push(start..range.end);
            }
        }
        // A union with nothing keeps the limit.
        Self { ranges, left_out: self.left_out }.union(&Self::default())
    }

    /// The ranks that both have, as far as they are known.
    pub fn both(&self, other: &Self) -> Self {
        Self { left_out: 0, ..self.minus(&self.minus(other)) }
    }

    /// Whether another has all of these, as far as they are known.
    pub fn is_within(&self, other: &Self) -> bool {
        self.minus(other).ranges.is_empty()
    }

    /// The lowest.
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|range| range.start)
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut all: Vec<u32> = ranks.into_iter().collect();
        all.sort_unstable();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for rank in all {
            match ranges.last_mut().filter(|last| last.end >= rank) {
                Some(last) => last.end = last.end.max(rank.saturating_add(1)),
                None => ranges.push(rank..rank.saturating_add(1)),
            }
        }
        // A union with nothing keeps the limit.
        Self { ranges, left_out: 0 }.union(&Self::default())
    }
}

impl std::fmt::Display for RankSet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, range) in self.ranges.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match range.end - range.start {
                1 => write!(out, "{comma}{}", range.start)?,
                _ => write!(out, "{comma}{}-{}", range.start, range.end - 1)?,
            }
        }
        if self.left_out > 0 { write!(out, "+{}", self.left_out) } else { Ok(()) }
    }
}

impl std::str::FromStr for RankSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not a set of ranks");
        let (listed, left_out) = match text.split_once('+') {
            Some((listed, count)) => (listed, count.parse().map_err(|_| wrong())?),
            None => (text, 0),
        };
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for part in listed.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| wrong())?;
            let end = last.parse::<u32>().ok().and_then(|last| last.checked_add(1)).ok_or_else(wrong)?;
            let in_order = ranges.last().is_none_or(|before| before.end < first);
            if end <= first || !in_order || ranges.len() == RANGES_MAX {
                return Err(wrong());
            }
            ranges.push(first..end);
        }
        Ok(Self { ranges, left_out })
    }
}

impl Serialize for RankSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RankSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: ranges are a set, and text keeps them.
        #[test]
        fn ranges_say_what_a_set_says(one in proptest::collection::btree_set(0..60u32, 0..30), two in proptest::collection::btree_set(0..60u32, 0..30)) {
            let (left, right): (RankSet, RankSet) = (one.iter().copied().collect(), two.iter().copied().collect());
            let both: BTreeSet<u32> = one.union(&two).copied().collect();
            let union = left.union(&right);
            prop_assert_eq!(&union, &both.iter().copied().collect::<RankSet>());
            prop_assert_eq!(union.count(), both.len() as u64);
            prop_assert!((0..60).all(|rank| union.contains(rank) == both.contains(&rank)));
            prop_assert_eq!(left.overlaps(&right), !one.is_disjoint(&two));
            prop_assert_eq!(&left.minus(&right), &one.difference(&two).copied().collect::<RankSet>());
            prop_assert_eq!(&left.both(&right), &one.intersection(&two).copied().collect::<RankSet>());
            prop_assert_eq!(left.is_within(&right), one.is_subset(&two));
            let missing: Vec<u32> = (0..60).filter(|rank| !both.contains(rank)).take(5).collect();
            prop_assert_eq!(union.missing(60, 5), missing);
            let text = serde_json::to_string(&union).unwrap();
            prop_assert_eq!(serde_json::from_str::<RankSet>(&text).unwrap(), union);
        }
    }

    #[test]
    fn a_set_that_is_too_scattered_is_cut_and_says_so() {
        let scattered: RankSet = (0..10_000u32).map(|rank| rank * 100_000).collect();
        assert!(scattered.is_cut());
        assert_eq!(scattered.count(), 10_000);
        let text = serde_json::to_string(&scattered).unwrap();
        assert!(text.len() <= 64 << 10, "{}", text.len());
        assert_eq!(serde_json::from_str::<RankSet>(&text).unwrap(), scattered);
        assert!(!RankSet::of(0..1_000_000).is_cut());
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in ["3-1", "5,4", "1,2", "x", "4294967295", "0-3+x"] {
            assert!(text.parse::<RankSet>().is_err(), "{text}");
        }
    }
}
