//! Orders: every item once, the way back, no pattern within an order or between two, and never another one tomorrow.

use penstock_io::Digest;
use proptest::prelude::*;

use super::*;
use crate::plan::statistics::chi_square;

fn key(number: u64) -> Key {
    Key::of("test", &[number.into()])
}

fn assert_order_of_all(order: &Permutation) {
    let mut seen = vec![false; order.len() as usize];
    for (index, item) in order.iter().enumerate() {
        assert!(!std::mem::replace(&mut seen[item as usize], true), "{item} comes twice");
        assert_eq!(order.inverse(item), Some(index as u64));
    }
    assert!(seen.into_iter().all(|seen| seen));
}

#[test]
fn every_item_comes_once_at_sizes_around_every_seam() {
    // 65,536 is the last table; 256^2 = 65,536, 257^2, 257 * 258 and their neighbours are where the halves change size.
    let sizes = [0, 1, 2, 3, 10, 255, 65_535, 65_536, 65_537, 66_048, 66_049, 66_050, 66_305, 66_306, 66_307];
    for size in sizes.into_iter().chain([99_999, 1_000_003]) {
        assert_order_of_all(&Permutation::new(&key(size), size));
        assert_order_of_all(&Permutation::identity(size));
    }
}

#[test]
fn the_largest_size_neither_overflows_nor_hangs() {
    for size in [u64::MAX, u64::MAX - 1, (1 << 62) + 1, u64::from(u32::MAX).pow(2)] {
        let order = Permutation::new(&key(0), size);
        for index in (0..1_000).chain(size - 1_000..size) {
            let item = order.at(index).unwrap();
            assert!(item < size);
            assert_eq!(order.inverse(item), Some(index));
        }
        assert_eq!((order.at(size), order.inverse(size)), (None, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Goal: an order is a bijection. Method: any size up to three times the table's, any key.
    #[test]
    fn any_order_has_every_item_once(size in prop_oneof![0..50_u64, 0..200_000_u64, 65_000..67_000_u64], of in any::<u64>()) {
        assert_order_of_all(&Permutation::new(&key(of), size));
    }

    /// Goal: the way back at sizes that cannot be walked. Method: any size, any index.
    #[test]
    fn the_way_back_leads_back(size in 1..=u64::MAX, index in any::<u64>(), of in any::<u64>()) {
        let order = Permutation::new(&key(of), size.max(TABLE_MAX + 1));
        let index = index % order.len();
        prop_assert_eq!(order.inverse(order.at(index).unwrap()), Some(index));
        prop_assert_eq!(order.at(order.inverse(index).unwrap()), Some(index));
    }
}

#[test]
fn orders_of_few_items_are_all_equally_likely() {
    let mut seen = [0_u64; 120];
    for number in 0..120_000 {
        let order: Vec<u64> = Permutation::new(&key(number), 5).iter().collect();
        // The rank of the order: at each place, how many later items are smaller.
        let rank = (0..5).fold(0, |rank, at| {
            rank * (5 - at) + order[at + 1..].iter().filter(|&&item| item < order[at]).count()
        });
        seen[rank] += 1;
    }
    assert!(chi_square(&seen).abs() < 4.5, "{}", chi_square(&seen));
}

#[test]
fn first_pairs_over_many_keys_are_equally_likely() {
    for (size, cells) in
        [(10, 10), (1_000, 20), (65_536, 16), (65_537, 16), (100_003, 20), (10_000_000_000, 20)]
    {
        let keys = if size > 10 && size <= TABLE_MAX { 6_000 } else { 200_000 };
        let mut seen = vec![0; cells * cells];
        for number in 0..keys {
            let order = Permutation::new(&key(number), size);
            let cell = |index| (order.at(index).unwrap() as u128 * cells as u128 / size as u128) as usize;
            seen[cell(0) * cells + cell(1)] += 1;
        }
        if size == 10 {
            seen.retain(|&count| count > 0);
            assert_eq!(seen.len(), 90, "two places hold two items");
        }
        assert!(chi_square(&seen).abs() < 4.5, "{size}: {}", chi_square(&seen));
    }
}

#[test]
fn neighbours_are_unrelated() {
    for (size, of) in [(65_536, 1), (65_537, 2), (1_000_003, 3), (1_000_003, 4), (10_000_000_000, 5)] {
        let order = Permutation::new(&key(of), size);
        for stride in [1, 2, 1_000, size / 2] {
            let mut seen = vec![0; 1_024];
            for index in 0..size.min(1_000_000) {
                let (here, there) = (order.at(index).unwrap(), order.at((index + stride) % size).unwrap());
                let apart = (u128::from(there) + u128::from(size - here)) % u128::from(size);
                seen[(apart * 1_024 / u128::from(size)) as usize] += 1;
            }
            // At half the size every pair is met from both sides, which doubles the variance.
            let bound = if stride == size / 2 { 25.0 } else { 4.5 };
            assert!(chi_square(&seen).abs() < bound, "{size} by {stride}: {}", chi_square(&seen));
        }
    }
}

#[test]
fn orders_of_neighbouring_epochs_and_seeds_are_unrelated() {
    let web = Digest::of(b"web");
    for size in [50_000, 200_000] {
        let orders = [(0, 0), (0, 1), (1, 0), (1, 1)]
            .map(|(seed, epoch)| Permutation::new(&Key::epoch(seed, &web, epoch), size));
        for (number, one) in orders.iter().enumerate() {
            for other in &orders[number + 1..] {
                let (mut joint, mut apart, mut equal) = (vec![0; 1_024], vec![0; 256], 0);
                for (a, b) in one.iter().zip(other.iter()) {
                    joint[(a * 32 / size * 32 + b * 32 / size) as usize] += 1;
                    apart[((a + size - b) % size * 256 / size) as usize] += 1;
                    equal += u64::from(a == b);
                }
                assert!(chi_square(&joint).abs() < 4.5, "{}", chi_square(&joint));
                assert!(chi_square(&apart).abs() < 4.5, "{}", chi_square(&apart));
                assert!(equal <= 8, "{equal} items at the same place, where one is expected");
            }
        }
    }
}

#[test]
fn golden_orders() {
    let some = |size: u64| {
        let order = Permutation::new(&Key::epoch(17, &Digest::of(b"web"), 3), size);
        [0, 1, size / 2, size - 1].map(|index| order.at(index).unwrap())
    };
    assert_eq!(some(5), [0, 2, 3, 4]);
    assert_eq!(some(65_536), [61_719, 52_871, 33_998, 63_511]);
    assert_eq!(some(65_537), [17_560, 27_298, 36_242, 6_669]);
    assert_eq!(some(1_000_003), [961_610, 949_075, 987_500, 573_361]);
    assert_eq!(some(10_000_000_000), [504_287_117, 4_138_270_078, 4_552_399_328, 8_460_750_707]);
}
