//! Crops: rows of a fixed length from tokens drawn at random, as nanoGPT and its kin train.
//!
//! All tokens of a source, end to end as they are stored, are one long text. A row is `length` tokens of it from any token on;
//! which token is a keyed draw from the epoch and the row's index in it, each token equally likely, so any row is found
//! at once and no row depends on another. An epoch has as many rows as the tokens would fill; since draws are independent, an
//! epoch has some tokens twice and, on average, 37 of 100 not at all. Without a shuffle row `i` begins at token `i * length`,
//! and every token is read once.

use std::ops::Range;

use super::key::Key;
use super::order::Shuffle;

/// A block of a crop table has so many samples, unless they are too long.
const BLOCK_ROWS: usize = 1_024;
/// A block has no more tokens at which a crop can begin, unless a single sample has.
const BLOCK_TOKENS_MAX: u64 = 1 << 31;

/// Rows of an epoch.
pub fn crop_rows(tokens: u64, length: u32) -> u64 {
    tokens / u64::from(length.max(1))
}

/// The token at which row `index` of an epoch begins; `key` is the epoch's, and `tokens` hold at least one row.
pub fn crop_at(key: &Key, shuffle: Shuffle, index: u64, tokens: u64, length: u32) -> u64 {
    match shuffle {
        Shuffle::None => index * u64::from(length),
        Shuffle::Full | Shuffle::Local => {
            let begins = (tokens + 1).saturating_sub(u64::from(length));
            key.derive("crop", &[index.into()]).draws().below(begins)
        }
    }
}

/// Which samples make up each block, with how many tokens of the last of them, given the lengths of all. Crops begin in the
/// block's own samples; the samples after them, up to `length - 1` tokens, let every one of these crops end in its block.
pub fn crop_blocks(lengths: &[u32], length: u32) -> Vec<(Range<usize>, u32)> {
    let mut blocks = vec![];
    let mut first = 0;
    while first < lengths.len() {
        let mut own: u64 = u64::from(lengths[first]);
        let mut stop = first + 1;
        while stop < lengths.len()
            && stop - first < BLOCK_ROWS
            && own + u64::from(lengths[stop]) <= BLOCK_TOKENS_MAX
        {
            own += u64::from(lengths[stop]);
            stop += 1;
        }
        let (mut more, mut end, mut last) = (u64::from(length) - 1, stop, lengths[stop - 1]);
        while more > 0 && end < lengths.len() {
            last = u64::from(lengths[end]).min(more) as u32;
            more -= u64::from(last);
            end += 1;
        }
        blocks.push((first..end, last));
        first = stop;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Packs, Permutation, Policy, pack_count, statistics::chi_square};

    proptest! {
        /// Goal: every token begins a crop, and every crop is what the tokens are. Method: any samples, joined by hand.
        #[test]
        fn blocks_have_every_crop_once(lengths in prop::collection::vec(0..9_u32, 1..40), length in 1..20_u32) {
            let text: Vec<(usize, u32)> = lengths
                .iter()
                .enumerate()
                .flat_map(|(sample, &length)| (0..length).map(move |token| (sample, token)))
                .collect();
            let mut crops = vec![];
            for (samples, last) in crop_blocks(&lengths, length) {
                let mut of_block = lengths[samples.clone()].to_vec();
                *of_block.last_mut().unwrap() = last;
                let order = Permutation::identity(of_block.len() as u64);
                let packs = Packs::new(&of_block, order, length, Policy::Crop).unwrap();
                prop_assert_eq!(packs.count(), pack_count(&of_block, length, Policy::Crop).unwrap());
                for pack in 0..packs.count() {
                    let mut spans = vec![];
                    packs.spans(pack, &of_block, &mut spans).unwrap();
                    let tokens = spans.iter().flat_map(|span| {
                        (span.start..span.start + span.length).map(|token| (samples.start + span.sample as usize, token))
                    });
                    crops.push(tokens.collect::<Vec<_>>());
                }
            }
            let expected: Vec<_> = text.windows(length as usize).map(<[_]>::to_vec).collect();
            prop_assert_eq!(crops, expected);
        }
    }

    #[test]
    fn long_sources_have_many_blocks() {
        let lengths = vec![10; 5_000];
        let blocks = crop_blocks(&lengths, 16);
        assert_eq!(blocks.len(), 5);
        // 15 tokens more: one whole sample and half of the next.
        assert_eq!((blocks[0].clone(), blocks[4].clone()), ((0..1_026, 5), (4_096..5_000, 10)));
        assert_eq!(crop_blocks(&[u32::MAX, u32::MAX], 3), [(0..2, 2), (1..2, u32::MAX)]);
    }

    #[test]
    fn every_token_is_equally_likely_and_every_draw_its_own() {
        let key = Key::of("test", &[]);
        let mut seen = vec![0; 97];
        (0..97_000).for_each(|index| seen[crop_at(&key, Shuffle::Full, index, 100, 4) as usize] += 1);
        assert!(chi_square(&seen).abs() < 4.5);
        assert_eq!(crop_at(&key, Shuffle::Full, 12_345, 4, 4), 0);
        assert_eq!(crop_at(&key, Shuffle::None, 24, 100, 4), 96);
        assert_eq!((crop_rows(103, 4), crop_rows(3, 4)), (25, 0));
    }

    #[test]
    fn golden_crops() {
        let key = Key::epoch(17, &penstock_io::Digest::of(b"web"), 3);
        let crops = [0, 1, 1 << 40].map(|index| crop_at(&key, Shuffle::Full, index, 9_035_582_198, 1_025));
        assert_eq!(crops, [8_886_606_765, 955_575_369, 6_813_024_129]);
    }
}
