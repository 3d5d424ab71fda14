//! Boxes of tensors: where two of them overlap, and which runs of bytes that is on both sides.

use std::ops::Range;

/// A box of a tensor, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Its first element, per dimension.
    pub offset: Vec<u64>,
    /// Its size, per dimension.
    pub shape: Vec<u64>,
}

impl Extent {
    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The elements that a piece and a target have in common, as equally long runs of bytes; both lie in memory row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// Bytes of each run.
    run_bytes: u64,
    /// Runs per outer dimension, outermost first, with the bytes from one to the next in the piece and in the target.
    outer: Vec<(u64, u64, u64)>,
    /// First byte in the piece and in the target.
    first: (u64, u64),
}

impl Overlap {
    /// What the two have in common, if anything.
    pub fn new(piece: &Extent, target: &Extent, item_bytes: u64) -> Option<Self> {
        let dimensions = piece.shape.len();
        if target.shape.len() != dimensions || piece.offset.len() != dimensions {
            return None;
        }
        let mut common = Vec::with_capacity(dimensions);
        for d in 0..dimensions {
            let first = piece.offset[d].max(target.offset[d]);
            let end = (piece.offset[d] + piece.shape[d]).min(target.offset[d] + target.shape[d]);
            common.push((first, end.checked_sub(first).filter(|&length| length > 0)?));
        }
        let (in_piece, in_target) = (strides(&piece.shape, item_bytes), strides(&target.shape, item_bytes));
        let mut first = (0, 0);
        for (d, &(start, _)) in common.iter().enumerate() {
            first.0 += (start - piece.offset[d]) * in_piece[d];
            first.1 += (start - target.offset[d]) * in_target[d];
        }
        // Dimensions that both sides hold completely join the run, and one more on the left of them does so in part.
        let (mut run_bytes, mut outer_count) = (item_bytes, dimensions);
        while outer_count > 0 {
            let d = outer_count - 1;
            run_bytes *= common[d].1;
            outer_count = d;
            if common[d].1 != piece.shape[d] || common[d].1 != target.shape[d] {
                break;
            }
        }
        let outer = (0..outer_count).map(|d| (common[d].1, in_piece[d], in_target[d])).collect();
        Some(Self { run_bytes, outer, first })
    }

    /// How many runs there are.
    pub fn runs(&self) -> u64 {
        self.outer.iter().map(|(count, _, _)| count).product()
    }

    /// First byte of a run in the piece and in the target. Runs are in the piece's order.
    fn run(&self, mut number: u64) -> (u64, u64) {
        let (mut piece, mut target) = self.first;
        for (count, in_piece, in_target) in self.outer.iter().rev() {
            piece += number % count * in_piece;
            target += number % count * in_target;
            number /= count;
        }
        (piece, target)
    }

    /// The bytes of the piece from the first to the last that is needed.
    pub fn range(&self) -> Range<u64> {
        self.first.0..self.run(self.runs().max(1) - 1).0 + self.run_bytes
    }

    /// Calls `put(byte of the piece, byte of the target, bytes)` for everything of `window`, a range of the piece's bytes.
    pub fn within(&self, window: Range<u64>, mut put: impl FnMut(u64, u64, u64)) {
        // The first run that ends behind the window's beginning: runs are in order, so it is found by halving.
        let (mut low, mut high) = (0, self.runs());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.run(middle).0 + self.run_bytes <= window.start {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for number in low..self.runs() {
            let (piece, target) = self.run(number);
            let (first, end) = (piece.max(window.start), (piece + self.run_bytes).min(window.end));
            if first >= end {
                break;
            }
            put(first, target + (first - piece), end - first);
        }
    }
}

fn strides(shape: &[u64], item_bytes: u64) -> Vec<u64> {
    let mut steps = vec![item_bytes; shape.len()];
    for d in (1..shape.len()).rev() {
        steps[d - 1] = steps[d] * shape[d];
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every element of a box with its byte, the slow way.
    fn elements(of: &Extent, item_bytes: u64) -> Vec<(Vec<u64>, u64)> {
        let count = of.elements();
        let at = |mut number: u64| {
            let mut place: Vec<u64> = of
                .shape
                .iter()
                .rev()
                .map(|size| {
                    let at = number % size;
                    number /= size;
                    at
                })
                .collect();
            place.reverse();
            place.iter().zip(&of.offset).map(|(at, first)| at + first).collect()
        };
        (0..count).map(|number| (at(number), number * item_bytes)).collect()
    }

    fn extent(dimensions: usize) -> impl Strategy<Value = Extent> {
        prop::collection::vec((0..4_u64, 0..5_u64), dimensions).prop_map(|sides| {
            let (offset, shape) = sides.into_iter().unzip();
            Extent { offset, shape }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Goal: runs are exactly the common elements, whatever the window. Method: compare with all elements, one by one.
        #[test]
        fn runs_are_the_common_elements(
            (piece, target) in (0..4_usize).prop_flat_map(|d| (extent(d), extent(d))),
            item_bytes in 1..4_u64,
            window in (0..120_u64, 0..120_u64),
        ) {
            let window = window.0.min(window.1)..window.0.max(window.1);
            let theirs: std::collections::HashMap<_, _> = elements(&target, item_bytes).into_iter().collect();
            let mut expected = vec![];
            for (place, byte) in elements(&piece, item_bytes) {
                if let Some(to) = theirs.get(&place) {
                    expected.extend((0..item_bytes).map(|k| (byte + k, to + k)).filter(|(from, _)| window.contains(from)));
                }
            }
            let mut pairs = vec![];
            if let Some(overlap) = Overlap::new(&piece, &target, item_bytes) {
                overlap.within(window.clone(), |from, to, bytes| pairs.extend((0..bytes).map(|k| (from + k, to + k))));
                let range = overlap.range();
                prop_assert!(pairs.iter().all(|(from, _)| range.contains(from)));
            } else {
                prop_assert!(elements(&piece, 1).iter().all(|(place, _)| !theirs.contains_key(place)));
            }
            prop_assert_eq!(pairs, expected);
        }
    }

    #[test]
    fn whole_rows_are_one_run() {
        let piece = Extent { offset: vec![4, 0], shape: vec![4, 8] };
        let target = Extent { offset: vec![6, 0], shape: vec![10, 8] };
        let overlap = Overlap::new(&piece, &target, 4).unwrap();
        assert_eq!((overlap.runs(), overlap.run_bytes, overlap.range()), (1, 64, 64..128));
        let scalar = Extent { offset: vec![], shape: vec![] };
        assert_eq!(Overlap::new(&scalar, &scalar, 4).unwrap().range(), 0..4);
    }
}
