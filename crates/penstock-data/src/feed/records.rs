//! Digests of rows that are no tokens: the bytes that stand for a row's values, hashed with the row's position.
//!
//! They add up as those of token batches do, so that the lanes of a step sum to the step.

use xxhash_rust::xxh3::Xxh3;

/// The sum of the digests of rows that stand at `position` and after it.
pub fn digest_rows<'rows>(position: u64, rows: impl IntoIterator<Item = &'rows [u8]>) -> u128 {
    rows.into_iter().zip(position..).fold(0, |sum, (row, at)| {
        let mut hasher = Xxh3::new();
        hasher.update(&at.to_le_bytes());
        hasher.update(row);
        sum.wrapping_add(hasher.digest128())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(position: u64, rows: &[Vec<u8>]) -> u128 {
        digest_rows(position, rows.iter().map(Vec::as_slice))
    }

    proptest! {
        /// Goal: lanes add up to the step. Method: cut rows anywhere.
        #[test]
        fn digests_of_parts_add_up(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..20), cut in 0..20_usize) {
            let cut = cut % (rows.len() + 1);
            let sum = digest(7, &rows[..cut]).wrapping_add(digest(7 + cut as u64, &rows[cut..]));
            prop_assert_eq!(sum, digest(7, &rows));
        }
    }

    #[test]
    fn a_digest_changes_with_position_and_bytes() {
        assert_ne!(digest(0, &[vec![1, 2]]), digest(1, &[vec![1, 2]]));
        assert_ne!(digest(0, &[vec![1, 2]]), digest(0, &[vec![1, 3]]));
        assert_ne!(digest(0, &[vec![1], vec![2]]), digest(0, &[vec![2], vec![1]]));
        assert_eq!(digest(0, &[]), 0);
    }
}
