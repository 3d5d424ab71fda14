//! Epochs: every pack of every block once, the same however it is reached, and as stored when nothing is shuffled.

use std::collections::HashSet;

use penstock_io::Digest;
use proptest::prelude::*;

use super::*;
use crate::plan::statistics::chi_square;

fn epoch(number: u64) -> Key {
    Key::epoch(17, &Digest::of(b"web"), number)
}

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop::sample::select(vec![Shuffle::Full, Shuffle::Local, Shuffle::None])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: an epoch has every pack once. Method: locate every index of any small epoch, blocks without packs among them.
    #[test]
    fn every_pack_comes_once(
        packs in prop::collection::vec(prop_oneof![1 => Just(0), 4 => 0..30_u32], 0..60),
        shuffle in any_shuffle(),
        window in 1..20_u64,
    ) {
        let plan = EpochPlan::with_window(&packs, &epoch(0), shuffle, window).unwrap();
        let placed: Vec<(u64, u32)> = (0..plan.packs()).map(|index| plan.locate(index).unwrap()).collect();
        let distinct: HashSet<(u64, u32)> = placed.iter().copied().collect();
        let expected: Vec<(u64, u32)> =
            packs.iter().zip(0..).flat_map(|(count, block)| (0..*count).map(move |pack| (block, pack))).collect();
        prop_assert_eq!(placed.len(), expected.len());
        prop_assert_eq!(distinct, expected.iter().copied().collect());
        if shuffle == Shuffle::None {
            prop_assert_eq!(placed, expected);
        }
        prop_assert_eq!(plan.locate(plan.packs()), None);
        prop_assert_eq!(plan.locate(u64::MAX), None);
    }

    /// Goal: reading on through kept windows equals reaching each index. Method: any epoch of several windows.
    #[test]
    fn a_kept_window_says_the_same(packs in prop::collection::vec(0..9_u32, 1..80), shuffle in any_shuffle()) {
        let plan = EpochPlan::with_window(&packs, &epoch(1), shuffle, 8).unwrap();
        let mut next = 0;
        while let Some(window) = plan.window_at(next) {
            prop_assert_eq!(window.range().start, next);
            prop_assert!(window.blocks().len() >= packs.len().min(8));
            for index in window.range() {
                prop_assert_eq!(window.locate(index), plan.locate(index));
            }
            next = window.range().end;
            prop_assert_eq!(window.locate(next), None);
        }
        prop_assert_eq!(next, plan.packs());
    }

    /// Goal: rows without packs are a permutation too. Method: any number of rows, singly and by range.
    #[test]
    fn every_row_comes_once(rows in prop_oneof![1..4_u64, 1..30_000_u64], shuffle in any_shuffle(), cut in 0.0..1.0_f64) {
        let order = RowOrder::new(rows, &epoch(2), shuffle).unwrap();
        let cut = (cut * rows as f64) as u64;
        let mut numbers = vec![];
        order.rows_in(0..cut, &mut numbers);
        order.rows_in(cut..rows + 10, &mut numbers);
        prop_assert_eq!(order.locate(cut), Some(numbers[cut as usize]));
        prop_assert_eq!((order.locate(rows), order.rows()), (None, rows));
        if shuffle == Shuffle::None {
            prop_assert!(numbers.is_sorted());
        }
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..rows).collect::<Vec<_>>());
    }
}

#[test]
fn epochs_of_a_source_are_different_draws() {
    let packs = vec![250_u32; 2_000];
    let [one, two] = [0, 1].map(|number| EpochPlan::new(&packs, &epoch(number), Shuffle::Full).unwrap());
    assert_eq!(one.packs(), two.packs());
    let mut joint = vec![0; 400];
    for start in (0..one.packs()).step_by(25_000) {
        let (a, b) = (one.window_at(start).unwrap(), two.window_at(start).unwrap());
        for index in (start..start + 25_000).step_by(7) {
            let cell = |window: &Window, plan: &EpochPlan<_>| {
                let place = window.locate(index).or_else(|| plan.locate(index));
                place.unwrap().0 * 20 / 2_000
            };
            joint[(cell(&a, &one) * 20 + cell(&b, &two)) as usize] += 1;
        }
    }
    // Windows hold whole blocks, so blocks come in clusters: far from independent draws, but no cell is special.
    assert!(joint.iter().all(|&count| count > 20), "{joint:?}");
}

#[test]
fn packs_of_a_window_come_from_all_its_blocks() {
    let plan = EpochPlan::new(vec![300_u32; 300], &epoch(0), Shuffle::Full).unwrap();
    let window = plan.window_at(0).unwrap();
    for start in [0, 30_000, 60_000] {
        let mut seen = vec![0; 300];
        (start..start + 30_000).for_each(|index| seen[window.locate(index).unwrap().0 as usize] += 1);
        // A draw without putting back is somewhat more even than chance.
        assert!(chi_square(&seen) < 4.5, "{}", chi_square(&seen));
    }
}

#[test]
fn samples_of_a_block_are_ordered_by_epoch_and_block() {
    let orders: HashSet<Vec<u64>> = (0..4)
        .flat_map(|number| {
            (0..4).map(move |block| in_block(&epoch(number), Shuffle::Full, block, 50).iter().collect())
        })
        .collect();
    assert_eq!(orders.len(), 16);
    assert!(in_block(&epoch(0), Shuffle::None, 3, 50).iter().is_sorted());
}

#[test]
fn an_epoch_without_rows_is_refused() {
    assert_eq!(RowOrder::new(0, &epoch(0), Shuffle::Full).unwrap_err(), PlanError::EmptySource);
}

#[test]
fn golden_epochs() {
    let packs: Vec<u32> = (0..1_000).map(|block| 200 + block % 7).collect();
    let some = |shuffle| {
        let plan = EpochPlan::new(&packs, &epoch(3), shuffle).unwrap();
        let rows = RowOrder::new(1_000_003, &epoch(3), shuffle).unwrap();
        [0, 1, 100_000, 202_993].map(|index| (plan.locate(index).unwrap(), rows.locate(index).unwrap()))
    };
    let full = [((963, 89), 981_604), ((847, 165), 583_864), ((734, 149), 456_446), ((445, 187), 210_143)];
    assert_eq!(some(Shuffle::Full), full);
    let local = [((702, 179), 118_973), ((599, 6), 225_598), ((743, 20), 404_115), ((896, 89), 273_029)];
    assert_eq!(some(Shuffle::Local), local);
    let none = [((0, 0), 0), ((0, 1), 1), ((492, 129), 100_000), ((999, 201), 202_993)];
    assert_eq!(some(Shuffle::None), none);
}
