//! Which samples of a source share a block, the unit inside which packs are made.
//!
//! A block is large enough that its padding (at most one pack) and the unevenness of a draw do not matter, and small enough
//! to be planned in a millisecond. Members are decided once per source, not per epoch, so that the length column can be
//! stored in block order and planning a block is one contiguous read.

use penstock_io::Digest;

use super::error::PlanError;
use super::even::Even;
use super::key::Key;
use super::order::{Permutation, Shuffle};

/// A block has at least so many samples, where the source has them.
pub const BLOCK_ROWS_MIN: u64 = 4_096;

/// A block has at least so many packs' worth of tokens on average, where that takes no more than [`BLOCK_ROWS_MAX`] samples.
pub const BLOCK_PACKS_MIN: u64 = 256;

/// No block is asked to have more samples than this (it may have up to twice as many): 64 MiB of lengths.
pub const BLOCK_ROWS_MAX: u64 = 1 << 24;

/// The surviving samples of a source, put into blocks.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Which run of places is which block.
    runs: Even,
    /// From place to surviving sample.
    members: Permutation,
}

impl Blocks {
    /// Blocks for `rows` surviving samples with `tokens` tokens in all, to be packed to `pack_tokens`.
    pub fn new(
        rows: u64,
        tokens: u64,
        pack_tokens: u32,
        shuffle: Shuffle,
        source: &Digest,
    ) -> Result<Self, PlanError> {
        if rows == 0 {
            return Err(PlanError::EmptySource);
        }
        if tokens == 0 {
            return Err(PlanError::NoTokens { samples: rows });
        }
        if pack_tokens == 0 {
            return Err(PlanError::PackTokens { pack_tokens, most: u32::MAX });
        }
        let members = match shuffle {
            Shuffle::Full => Permutation::new(&Key::members(source), rows),
            Shuffle::Local | Shuffle::None => Permutation::identity(rows),
        };
        Ok(Self { runs: Even::at_least(rows, rows_per_block(rows, tokens, pack_tokens)), members })
    }

    /// How many surviving samples there are.
    pub fn rows(&self) -> u64 {
        self.runs.total()
    }

    /// How many blocks there are.
    pub fn block_count(&self) -> u64 {
        self.runs.parts()
    }

    /// The places of a block in the whole of all blocks, which is where its lengths are stored; `None` past the last block.
    pub fn places(&self, block: u64) -> Option<std::ops::Range<u64>> {
        self.runs.range(block)
    }

    /// The surviving samples of a block, by their place in it; `None` past the last block.
    pub fn members(&self, block: u64) -> Option<impl Iterator<Item = u64> + '_> {
        Some(self.places(block)?.filter_map(|place| self.members.at(place)))
    }

    /// The surviving sample at one place of a block.
    pub fn member(&self, block: u64, place: u32) -> Option<u64> {
        let places = self.places(block)?;
        let at = places.start + u64::from(place);
        if at < places.end { self.members.at(at) } else { None }
    }

    /// The block of a surviving sample, and its place there.
    pub fn find(&self, sample: u64) -> Option<(u64, u32)> {
        let (block, place) = self.runs.find(self.members.inverse(sample)?)?;
        // A block has fewer than 2 * BLOCK_ROWS_MAX samples.
        Some((block, place as u32))
    }
}

/// How many samples a block has at least.
fn rows_per_block(rows: u64, tokens: u64, pack_tokens: u32) -> u64 {
    // Below 2^(8 + 32 + 64), so no overflow.
    let wanted = u128::from(BLOCK_PACKS_MIN) * u128::from(pack_tokens) * u128::from(rows);
    let for_tokens = wanted.div_ceil(u128::from(tokens)).min(u128::from(BLOCK_ROWS_MAX)) as u64;
    for_tokens.max(BLOCK_ROWS_MIN).min(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn web() -> Digest {
        Digest::of(b"web")
    }

    #[test]
    fn blocks_have_the_size_that_packing_asks_for() {
        assert_eq!(rows_per_block(1_000_000, 100_000_000, 2_048), 5_243, "256 * 2048 / 100");
        assert_eq!(rows_per_block(1_000_000, 1_000_000_000, 2_048), 4_096, "long samples");
        assert_eq!(rows_per_block(3, 1, 2_048), 3, "a small source");
        assert_eq!(rows_per_block(u64::MAX, 1, u32::MAX), BLOCK_ROWS_MAX, "nearly no tokens");
        assert_eq!(rows_per_block(u64::MAX, u64::MAX, 1), 4_096);
    }

    #[test]
    fn a_source_without_samples_or_tokens_is_refused() {
        let refused =
            |rows, tokens, length| Blocks::new(rows, tokens, length, Shuffle::Full, &web()).unwrap_err();
        assert_eq!(refused(0, 0, 8), PlanError::EmptySource);
        assert_eq!(refused(3, 0, 8), PlanError::NoTokens { samples: 3 });
        assert_eq!(refused(3, 1, 0), PlanError::PackTokens { pack_tokens: 0, most: u32::MAX });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Goal: blocks partition the surviving samples. Method: any source; walk all blocks, find each sample again.
        #[test]
        fn every_sample_is_in_one_block(
            rows in prop_oneof![1..10_u64, 1..100_000_u64],
            mean in 1..400_u64,
            length in 1..3_000_u32,
            shuffle in prop::sample::select(vec![Shuffle::Full, Shuffle::Local, Shuffle::None]),
        ) {
            let blocks = Blocks::new(rows, rows * mean, length, shuffle, &web()).unwrap();
            let mut seen = vec![false; rows as usize];
            for block in 0..blocks.block_count() {
                let members: Vec<u64> = blocks.members(block).unwrap().collect();
                prop_assert!(members.len() as u64 >= rows_per_block(rows, rows * mean, length));
                for (place, &sample) in members.iter().enumerate() {
                    prop_assert!(!std::mem::replace(&mut seen[sample as usize], true));
                    prop_assert_eq!(blocks.find(sample), Some((block, place as u32)));
                    prop_assert_eq!(blocks.member(block, place as u32), Some(sample));
                }
                if shuffle != Shuffle::Full {
                    prop_assert!(members.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                }
                prop_assert_eq!(blocks.member(block, members.len() as u32), None);
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
            prop_assert!(blocks.members(blocks.block_count()).is_none());
            prop_assert_eq!(blocks.find(rows), None);
        }
    }

    #[test]
    fn golden_blocks() {
        let blocks = Blocks::new(1_000_003, 100_000_300, 2_048, Shuffle::Full, &web()).unwrap();
        let heads = [0, 1, 189].map(|block| blocks.member(block, 0).unwrap());
        assert_eq!((blocks.block_count(), heads), (190, [549_383, 645_178, 278_249]));
        assert_eq!(blocks.find(7), Some((107, 4_435)));
    }
}
