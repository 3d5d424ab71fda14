//! Packs: every token once, no document cut without need, and a number of packs that no order changes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::plan::key::Key;

fn order(number: u64, len: usize) -> Permutation {
    Permutation::new(&Key::of("test", &[number.into()]), len as u64)
}

fn all_spans(packs: &Packs, lengths: &[u32]) -> Vec<Vec<Span>> {
    let spans = |pack| {
        let mut spans = vec![];
        packs.spans(pack, lengths, &mut spans).unwrap();
        spans
    };
    (0..packs.count()).map(spans).collect()
}

fn made(lengths: &[u32], seed: u64, pack_tokens: u32, policy: Policy) -> Vec<Vec<Span>> {
    let packs = Packs::new(lengths, order(seed, lengths.len()), pack_tokens, policy).unwrap();
    assert_eq!(packs.count(), pack_count(lengths, pack_tokens, policy).unwrap());
    all_spans(&packs, lengths)
}

/// Every token of every sample stands once; packs are filled from the front without holes.
fn assert_whole(packs: &[Vec<Span>], lengths: &[u32], pack_tokens: u32) {
    let mut covered: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for spans in packs {
        let mut at = 0;
        for span in spans {
            assert_eq!(span.at, at);
            assert!(span.length > 0);
            at += span.length;
            covered.entry(span.sample).or_default().push((span.start, span.length));
        }
        assert!(at > 0 && at <= pack_tokens);
    }
    for (sample, &length) in lengths.iter().enumerate() {
        let mut parts = covered.remove(&(sample as u32)).unwrap_or_default();
        parts.sort_unstable();
        let end = parts.iter().fold(0, |end, &(start, length)| {
            assert_eq!(start, end);
            start + length
        });
        assert_eq!(end, length);
    }
    assert!(covered.is_empty());
}

/// The lengths that stand together, whoever stands there.
fn shape(packs: &[Vec<Span>]) -> Vec<Vec<u32>> {
    let mut shape: Vec<Vec<u32>> = packs
        .iter()
        .map(|spans| {
            let mut lengths: Vec<u32> = spans.iter().map(|span| span.length).collect();
            lengths.sort_unstable();
            lengths
        })
        .collect();
    shape.sort_unstable();
    shape
}

fn any_block() -> impl Strategy<Value = (Vec<u32>, u32)> {
    let length = prop_oneof![3 => 0..40_u32, 1 => Just(0), 1 => 0..400_u32];
    let pack_tokens = prop_oneof![Just(1), 1..10_u32, 1..100_u32, Just(1_000)];
    (prop::collection::vec(length, 0..120), pack_tokens)
}

proptest! {
    /// Goal: nothing lost, nothing twice, samples in the epoch's order. Method: lay any block end to end again.
    #[test]
    fn concat_joins_the_samples_end_to_end((lengths, pack_tokens) in any_block(), seed in 0..9_u64) {
        let packs = made(&lengths, seed, pack_tokens, Policy::Concat);
        assert_whole(&packs, &lengths, pack_tokens);
        let joined: Vec<(u32, u32)> = packs
            .iter()
            .flatten()
            .flat_map(|span| (span.start..span.start + span.length).map(|token| (span.sample, token)))
            .collect();
        let expected: Vec<(u32, u32)> = order(seed, lengths.len())
            .iter()
            .flat_map(|sample| (0..lengths[sample as usize]).map(move |token| (sample as u32, token)))
            .collect();
        prop_assert_eq!(joined, expected);
        let full = packs.iter().rev().skip(1).all(|spans| spans.iter().map(|span| span.length).sum::<u32>() == pack_tokens);
        prop_assert!(full, "only the last pack is padded");
    }

    /// Goal: whole documents, and a shape that no epoch changes. Method: any block under two orders.
    #[test]
    fn fit_cuts_only_what_is_too_long((lengths, pack_tokens) in any_block(), seed in 0..9_u64) {
        let packs = made(&lengths, seed, pack_tokens, Policy::Fit);
        assert_whole(&packs, &lengths, pack_tokens);
        for span in packs.iter().flatten() {
            let length = lengths[span.sample as usize];
            prop_assert_eq!(span.start % pack_tokens, 0);
            prop_assert_eq!(span.length, (length - span.start).min(pack_tokens));
        }
        // Samples of a pack stand in the epoch's order, and packs in the order of their first samples.
        let order = order(seed, lengths.len());
        let places: Vec<Vec<u64>> = packs
            .iter()
            .map(|spans| spans.iter().map(|span| order.inverse(span.sample.into()).unwrap()).collect())
            .collect();
        prop_assert!(places.iter().all(|pack| pack.is_sorted()));
        prop_assert!(places.iter().map(|pack| pack[0]).is_sorted());
        prop_assert_eq!(shape(&packs), shape(&made(&lengths, seed + 1, pack_tokens, Policy::Fit)));
    }

    /// Goal: one sample in each pack, in the epoch's order. Method: any block whose samples fit.
    #[test]
    fn single_gives_each_sample_a_pack((lengths, pack_tokens) in any_block(), seed in 0..9_u64) {
        let lengths: Vec<u32> = lengths.iter().map(|length| length % (pack_tokens + 1)).collect();
        let packs = made(&lengths, seed, pack_tokens, Policy::Single);
        assert_whole(&packs, &lengths, pack_tokens);
        prop_assert!(packs.iter().all(|spans| spans.len() == 1));
        let samples: Vec<u64> = packs.iter().map(|spans| spans[0].sample.into()).collect();
        let order = order(seed, lengths.len());
        let expected: Vec<u64> = order.iter().filter(|sample| lengths[*sample as usize] > 0).collect();
        prop_assert_eq!(samples, expected);
    }

    /// Goal: best fit is worth its name. Method: samples of less than a quarter of a pack fill three quarters of each.
    #[test]
    fn fit_wastes_little((lengths, pack_tokens) in any_block()) {
        let fit = pack_count(&lengths, pack_tokens, Policy::Fit).unwrap();
        let short: Vec<u32> = lengths.iter().map(|length| length % pack_tokens.div_ceil(4).max(1)).collect();
        let (fit_short, concat_short) =
            (pack_count(&short, pack_tokens, Policy::Fit).unwrap(), pack_count(&short, pack_tokens, Policy::Concat).unwrap());
        prop_assert!(fit >= pack_count(&lengths, pack_tokens, Policy::Concat).unwrap());
        // A pack is begun only when all others have less room than the sample needs.
        prop_assert!(u64::from(fit_short) * 3 <= u64::from(concat_short) * 4 + 3, "{} {}", fit_short, concat_short);
    }
}

#[test]
fn equally_long_samples_change_places_between_epochs() {
    let lengths = vec![10; 400];
    let partners = |seed| {
        let mut packs: Vec<Vec<u32>> = made(&lengths, seed, 20, Policy::Fit)
            .iter()
            .map(|spans| spans.iter().map(|span| span.sample).collect())
            .collect();
        packs.iter_mut().for_each(|pack| pack.sort_unstable());
        packs.sort_unstable();
        packs
    };
    let (one, two) = (partners(1), partners(2));
    let again = one.iter().filter(|pack| two.binary_search(pack).is_ok()).count();
    assert!(again < 8, "{again} of 200 pairs recur");
}

#[test]
fn large_blocks_and_lengths_are_packed() {
    let lengths: Vec<u32> = (0..70_000_u32).map(|n| n.wrapping_mul(2_654_435_761) >> 22).collect();
    for policy in [Policy::Concat, Policy::Fit] {
        assert_whole(&made(&lengths, 3, 2_048, policy), &lengths, 2_048);
        let huge = [u32::MAX, 0, 7, u32::MAX - 1];
        let packs = made(&huge, 0, 1 << 24, policy);
        let total: u64 = packs.iter().flatten().map(|span| u64::from(span.length)).sum();
        assert_eq!(total, 2 * u64::from(u32::MAX) + 6);
    }
    let packs = made(&[u32::MAX, u32::MAX], 0, u32::MAX, Policy::Concat);
    assert_eq!(packs.len(), 2);
}

#[test]
fn blocks_without_tokens_make_no_packs() {
    for policy in [Policy::Concat, Policy::Fit, Policy::Single] {
        for lengths in [vec![], vec![0], vec![0; 5_000]] {
            assert!(made(&lengths, 0, 8, policy).is_empty());
        }
    }
}

#[test]
fn what_cannot_be_packed_is_refused() {
    for policy in [Policy::Concat, Policy::Fit] {
        let refused = pack_count(&[1], 0, policy).unwrap_err();
        assert_eq!(refused, PlanError::PackTokens { pack_tokens: 0, most: u32::MAX });
        let packs = 2 * u64::from(u32::MAX);
        let many = pack_count(&[u32::MAX, u32::MAX], 1, policy).unwrap_err();
        assert_eq!(many, PlanError::TooManyPacks { packs });
        assert_eq!(Packs::new(&[u32::MAX, u32::MAX], order(0, 2), 1, policy).unwrap_err(), many);
        let wrong = Packs::new(&[1, 2], order(0, 3), 8, policy).unwrap_err();
        assert_eq!(wrong, PlanError::Lengths { expected: 3, found: 2 });
        let packs = Packs::new(&[1, 2], order(0, 2), 8, policy).unwrap();
        assert_eq!(packs.spans(1, &[1, 2], &mut vec![]), Err(PlanError::NoSuchPack { pack: 1, packs: 1 }));
        assert_eq!(packs.spans(0, &[1], &mut vec![]), Err(PlanError::Lengths { expected: 2, found: 1 }));
    }
    assert!(pack_count(&[1], u32::MAX, Policy::Fit).is_err());
    let too_long = PlanError::SampleTooLong { tokens: 9, pack_tokens: 8 };
    assert_eq!(pack_count(&[8, 9], 8, Policy::Single), Err(too_long.clone()));
    assert_eq!(Packs::new(&[8, 9], order(0, 2), 8, Policy::Single).unwrap_err(), too_long);
}

#[test]
fn golden_packs() {
    let lengths = [5, 0, 17, 3, 8, 8, 2, 30, 1, 8];
    let packed = |policy| -> Vec<Vec<[u32; 4]>> {
        let numbers = |span: &Span| [span.sample, span.start, span.length, span.at];
        made(&lengths, 7, 16, policy).iter().map(|spans| spans.iter().map(numbers).collect()).collect()
    };
    let concat = [
        vec![[2, 0, 16, 0]],
        vec![[2, 16, 1, 0], [4, 0, 8, 1], [8, 0, 1, 9], [9, 0, 6, 10]],
        vec![[9, 6, 2, 0], [0, 0, 5, 2], [3, 0, 3, 7], [5, 0, 6, 10]],
        vec![[5, 6, 2, 0], [7, 0, 14, 2]],
        vec![[7, 14, 16, 0]],
        vec![[6, 0, 2, 0]],
    ];
    assert_eq!(packed(Policy::Concat), concat);
    let fit = [
        vec![[2, 0, 16, 0]],
        vec![[2, 16, 1, 0], [8, 0, 1, 1]],
        vec![[4, 0, 8, 0], [9, 0, 8, 8]],
        vec![[0, 0, 5, 0], [3, 0, 3, 5], [5, 0, 8, 8]],
        vec![[7, 0, 16, 0]],
        vec![[7, 16, 14, 0], [6, 0, 2, 14]],
    ];
    assert_eq!(packed(Policy::Fit), fit);
}
