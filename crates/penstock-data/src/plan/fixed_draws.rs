//! What is drawn for a version once and for all, whatever the seed of a recipe: the rows that are held out, and the order of its slices.

use penstock_io::Digest;

use super::key::Key;
use super::order::Permutation;

/// Marks the rows of a version that are held out with 1, others with 0: a fixed share of them. `into` has a byte per row.
pub fn mark_held_out(version: &Digest, share: f64, into: &mut [u8]) {
    let mut draws = Key::of("held out", &[version.into()]).draws();
    // 53 bits make a fraction that every machine rounds the same way.
    let limit = share * (1u64 << 53) as f64;
    into.iter_mut().for_each(|row| *row = u8::from(((draws.bits() >> 11) as f64) < limit));
}

/// The slices of a version in the order in which eras take them.
pub fn slice_order(version: &Digest, slices: u64) -> Permutation {
    Permutation::new(&Key::of("slices", &[version.into()]), slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_held_out_the_same_rows_for_more_rows() {
        let version = Digest::of(b"a version");
        let mut rows = vec![0; 20_000];
        mark_held_out(&version, 0.1, &mut rows);
        let held = rows.iter().filter(|row| **row == 1).count();
        assert!((1_800..2_200).contains(&held), "{held}");
        let mut more = vec![0; 30_000];
        mark_held_out(&version, 0.1, &mut more);
        assert_eq!(more[..20_000], rows);
        mark_held_out(&version, 0.0, &mut more);
        assert!(more.iter().all(|row| *row == 0));
        mark_held_out(&version, 1.0, &mut more);
        assert!(more.iter().all(|row| *row == 1));
    }

    #[test]
    fn every_slice_is_taken_once() {
        let mut order: Vec<u64> = slice_order(&Digest::of(b"a version"), 100).iter().collect();
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
