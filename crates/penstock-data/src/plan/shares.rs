//! Weights as exact shares: how many of the first `n` places each source has, for any `n`, at once.
//!
//! Rounding each source's ideal by itself does not sum to `n`, and giving out the difference by largest remainder can take
//! back a place that a source already had. So places are divided along a Huffman tree of the weights: a node that has `n`
//! places gives `round(n * left / (left + right))` to the left and the rest to the right.
//!
//! * Counts sum to `n`, since every node gives out all it has.
//! * No count ever falls as `n` grows: rounding is monotone, one more place raises the left by 0 or 1 and the right by the
//!   complement, and so down the tree. Thus the places of a period, `count(end) - count(begin)`, are never negative.
//! * Every count is within 1.68 of its ideal `n * weight / total`, however many sources there are. A node's rounding errs by
//!   at most 1/2 and reaches a leaf below scaled by their weights, so a leaf of weight w errs by at most half the sum of
//!   w / w_j over itself and its ancestors below the root. In a Huffman tree a node's sibling weighs at least as much as
//!   each of the node's children, so w_(j+2) >= w_(j+1) + w_j: ancestors grow at least as Fibonacci numbers do, and half the
//!   sum of their reciprocals is 1.68. Two sources are within 1/2, three within 1.
//! * Errors do not add up over time, since counts are of all places so far. A weight of 1e-6 has a place in any two million.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::PlanError;

/// Most sources in a mixture: a place names its source in two bytes.
pub const SOURCES_MAX: usize = 65_535;

/// The units of the heaviest source. With 2^16 sources all units sum to less than 2^63, so that units times places stay
/// below 2^127.
const UNITS: f64 = (1_u64 << 47) as f64;

/// The shares of all sources under one set of weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    /// For each source its weight as a whole number; 0 when it has no places.
    units: Vec<u64>,
    /// For each source its node, where it has one.
    leaves: Vec<Option<u32>>,
    /// Children before parents; the root is the last.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    units: u64,
    parent: u32,
    /// The left child, whose count is rounded, and the right one, which has the rest.
    children: Option<(u32, u32)>,
}

impl Shares {
    /// The shares that weights stand for, from position `from` on, which errors name. Only their ratios matter; a positive
    /// weight counts for at least 2^-47 of the largest.
    pub fn new(weights: &[f64], from: u64) -> Result<Self, PlanError> {
        Self::check(weights, from)?;
        let heaviest = weights.iter().copied().fold(0.0, f64::max);
        // IEEE division, multiplication and rounding give the same bits on every machine.
        let units = weights.iter().map(|&weight| match weight {
            0.0 => 0,
            _ => (weight / heaviest * UNITS).round().max(1.0) as u64,
        });
        Self::of_units(units.collect()).ok_or(PlanError::NoWeight { from })
    }

    /// Why weights stand for no shares, if they do not.
    pub fn check(weights: &[f64], from: u64) -> Result<(), PlanError> {
        if weights.len() > SOURCES_MAX {
            return Err(PlanError::TooManySources { sources: weights.len(), most: SOURCES_MAX });
        }
        if let Some(source_number) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
            return Err(PlanError::BadWeight { from, source_number, weight: weights[source_number] });
        }
        if weights.iter().any(|weight| *weight > 0.0) { Ok(()) } else { Err(PlanError::NoWeight { from }) }
    }

    /// The same ratios among the sources that are not `gone`; `None` when no place would be anyone's.
    pub fn without(&self, gone: impl Fn(usize) -> bool) -> Option<Self> {
        let left = self.units.iter().enumerate();
        Self::of_units(left.map(|(source, &units)| if gone(source) { 0 } else { units }).collect())
    }

    /// Whether a source has places at all.
    pub fn has(&self, source: usize) -> bool {
        self.units.get(source).is_some_and(|units| *units > 0)
    }

    /// How many sources there are, with places or without.
    pub fn sources(&self) -> usize {
        self.units.len()
    }

    /// How many of the first `places` places each source has.
    pub fn counts(&self, places: u64) -> Vec<u64> {
        let mut of_node = vec![0; self.nodes.len()];
        let mut counts = vec![0; self.units.len()];
        if let Some(root) = of_node.last_mut() {
            *root = places;
        }
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if let Some((left, right)) = node.children {
                let rounded = self.left_count(left, node.units, of_node[at]);
                of_node[left as usize] = rounded;
                of_node[right as usize] = of_node[at] - rounded;
            }
        }
        for (count, leaf) in counts.iter_mut().zip(&self.leaves) {
            *count = leaf.map_or(0, |leaf| of_node[leaf as usize]);
        }
        counts
    }

    /// How many of the first `places` places one source has.
    pub fn count(&self, source: usize, places: u64) -> u64 {
        let Some(leaf) = self.leaves.get(source).copied().flatten() else { return 0 };
        let root = self.nodes.len() as u32 - 1;
        let mut path = vec![leaf];
        while let Some(&at) = path.last().filter(|at| **at != root) {
            path.push(self.nodes[at as usize].parent);
        }
        path.windows(2).rev().fold(places, |count, pair| {
            let parent = &self.nodes[pair[1] as usize];
            let Some((left, _)) = parent.children else { return count };
            let rounded = self.left_count(left, parent.units, count);
            if left == pair[0] { rounded } else { count - rounded }
        })
    }

    fn left_count(&self, left: u32, units: u64, count: u64) -> u64 {
        let left = u128::from(self.nodes[left as usize].units) * u128::from(count);
        // At most `count`: half of the units is not enough for one more.
        ((left + u128::from(units / 2)) / u128::from(units)) as u64
    }

    /// Builds the tree: the two lightest nodes get a parent until one is left; of equals, the one made first.
    fn of_units(units: Vec<u64>) -> Option<Self> {
        let mut nodes: Vec<Node> = vec![];
        let mut leaves = vec![None; units.len()];
        for (leaf, &units) in leaves.iter_mut().zip(&units).filter(|(_, units)| **units > 0) {
            *leaf = Some(nodes.len() as u32);
            nodes.push(Node { units, parent: 0, children: None });
        }
        let mut heap: BinaryHeap<_> =
            nodes.iter().zip(0_u32..).map(|(node, at)| Reverse((node.units, at))).collect();
        while let Some(Reverse((light, right))) = heap.pop() {
            let Some(Reverse((heavy, left))) = heap.pop() else { break };
            let parent = nodes.len() as u32;
            nodes[left as usize].parent = parent;
            nodes[right as usize].parent = parent;
            nodes.push(Node { units: light + heavy, parent, children: Some((left, right)) });
            heap.push(Reverse((light + heavy, parent)));
        }
        (!nodes.is_empty()).then_some(Self { units, leaves, nodes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_weights() -> impl Strategy<Value = Vec<f64>> {
        let weight = prop_oneof![
            Just(0.0),
            Just(1.0),
            0.0..1.0_f64,
            (-9.0..0.0_f64).prop_map(|power| 10_f64.powf(power))
        ];
        prop::collection::vec(weight, 1..40)
            .prop_filter("some weight", |weights| weights.iter().any(|&weight| weight > 0.0))
    }

    proptest! {
        /// Goal: the four promises of the header. Method: any weights, any two numbers of places.
        #[test]
        fn counts_sum_rise_and_stay_near_their_ideals(weights in any_weights(), places in 0..1_u64 << 40, more in 0..200_000_u64) {
            let shares = Shares::new(&weights, 0).unwrap();
            let (before, after) = (shares.counts(places), shares.counts(places + more));
            prop_assert_eq!(before.iter().sum::<u64>(), places);
            prop_assert_eq!(after.iter().sum::<u64>(), places + more);
            prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
            let total: u128 = shares.units.iter().map(|&units| u128::from(units)).sum();
            for (source, &count) in before.iter().enumerate() {
                prop_assert_eq!(shares.count(source, places), count);
                // 1.68 in units of the exact ideal, without floating point.
                let ideal = u128::from(shares.units[source]) * u128::from(places);
                prop_assert!(ideal.abs_diff(u128::from(count) * total) * 100 <= 168 * total);
                prop_assert!(shares.has(source) || count == 0);
            }
        }

        /// Goal: one place more raises one count by one. Method: count place by place.
        #[test]
        fn places_are_given_one_by_one(weights in any_weights(), from in 0..1_u64 << 30) {
            let shares = Shares::new(&weights, 0).unwrap();
            let mut before = shares.counts(from);
            for places in from + 1..from + 200 {
                let after = shares.counts(places);
                let risen: u64 = before.iter().zip(&after).map(|(before, after)| after - before).sum();
                prop_assert_eq!(risen, 1);
                before = after;
            }
        }
    }

    #[test]
    fn two_sources_are_rounded_as_one_would() {
        let shares = Shares::new(&[0.7, 0.3], 0).unwrap();
        for period in 0..1_000 {
            let ideal = (0.7 * 65_536.0 * f64::from(period)).round() as u64;
            assert_eq!(shares.count(0, 65_536 * u64::from(period as u32)), ideal);
        }
    }

    #[test]
    fn a_tiny_weight_never_vanishes() {
        for (weight, places) in [(1e-6, 2_000_000), (1e-12, 2_000_000_000_000)] {
            let shares = Shares::new(&[0.5, weight, 0.5, 0.0], 0).unwrap();
            for start in (0..10).map(|n| n * places) {
                let count = shares.count(1, start + places) - shares.count(1, start);
                assert!((1..=3).contains(&count), "{weight}: {count}");
            }
        }
        let shares = Shares::new(&[1.0, f64::MIN_POSITIVE], 0).unwrap();
        assert!(shares.count(1, 1 << 62) > 0);
    }

    #[test]
    fn ratios_alone_matter() {
        let of = |weights: &[f64]| Shares::new(weights, 0).unwrap();
        assert_eq!(of(&[1.0, 2.0, 4.0]), of(&[0.25, 0.5, 1.0]));
        assert_eq!(of(&[1.0, 2.0, 4.0]).without(|source| source == 1).unwrap().counts(10), [2, 0, 8]);
        assert_eq!(of(&[f64::MAX, f64::MAX]).counts(10), [5, 5]);
        assert_eq!(of(&[1.0, 0.0]).without(|source| source == 0), None);
        assert_eq!(of(&[1.0]).sources(), 1);
    }

    #[test]
    fn weights_that_are_none_are_refused() {
        for weight in [f64::NAN, f64::INFINITY, -1.0, -0.5] {
            let refused = Shares::new(&[1.0, weight], 7).unwrap_err();
            assert!(matches!(refused, PlanError::BadWeight { from: 7, source_number: 1, .. }), "{refused}");
        }
        assert_eq!(Shares::new(&[], 0), Err(PlanError::NoWeight { from: 0 }));
        assert_eq!(Shares::new(&[0.0, -0.0], 3), Err(PlanError::NoWeight { from: 3 }));
        assert!(Shares::new(&vec![1.0; SOURCES_MAX + 1], 0).is_err());
        assert_eq!(Shares::new(&vec![1.0; SOURCES_MAX], 0).unwrap().counts(65_535), vec![1; SOURCES_MAX]);
    }

    #[test]
    fn golden_counts() {
        let shares = Shares::new(&[0.5, 0.3, 0.2, 1e-6, 0.1], 0).unwrap();
        assert_eq!(shares.counts(65_536), [29_789, 17_873, 11_916, 0, 5_958]);
        assert_eq!(shares.counts(1_000_003), [454_546, 272_728, 181_819, 1, 90_909]);
        let many = [
            511_772_219_680_992,
            307_063_331_808_596,
            204_708_887_872_396,
            1_023_544_440,
            102_354_443_936_200,
        ];
        assert_eq!(shares.counts(1 << 50), many);
    }
}
