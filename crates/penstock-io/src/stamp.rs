//! What a file looks like from outside: size, and times of its last changes, as one word that is cheap to compare.
//!
//! The kernel counts time in ticks of some milliseconds, so a file that was changed in the very tick of a look may be changed
//! again and look the same. Such a stamp is unsettled, and whatever is seen next counts as a change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

/// Longer than any tick of a kernel or of a common file system's clock.
const TICK_NS: i128 = 100_000_000;

/// A stamp of a file; equal stamps that are settled mean that nothing changed which shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// Of a file that cannot be looked at any more.
    pub const MISSING: Self = Self(Self::UNKNOWN);
    /// The word of a stamp that is like no other.
    pub(crate) const UNKNOWN: u64 = 2;

    /// From what the system says about a file.
    pub fn of_file(status: &Metadata) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
        let fields = [
            i128::from(status.size()),
            nanoseconds(status.mtime(), status.mtime_nsec()),
            nanoseconds(status.ctime(), status.ctime_nsec()),
        ];
        // A clock that is ahead of ours, as a file server's may be, says nothing about ticks.
        let settled = fields[1..].iter().all(|&changed| !(0..TICK_NS).contains(&(now - changed)));
        Self::new(&fields, settled)
    }

    /// From a count of changes.
    pub(crate) fn of_count(changes: u64) -> Self {
        Self::new(&[i128::from(changes), 0, 0], true)
    }

    fn new(fields: &[i128; 3], settled: bool) -> Self {
        let mut bytes = [0; 48];
        for (place, field) in bytes.chunks_exact_mut(16).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        // Neither 0, which is no stamp, nor the unknown one.
        Self(xxh3_64(&bytes) & !3 | 4 | u64::from(settled))
    }

    /// As a word that is never 0; the lowest bit says whether it is settled.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Whether nothing changed between two looks, given their words.
    pub(crate) fn is_same(before: u64, now: u64) -> bool {
        // One before that is not settled is equal to none.
        before == now | 1
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_by_any_field_and_unsettled_ones_are_never_the_same() {
        let plain = Stamp::new(&[1, 2, 3], true).word();
        assert!(Stamp::is_same(plain, plain));
        for other in [[0, 2, 3], [1, 0, 3], [1, 2, 0]] {
            assert!(!Stamp::is_same(plain, Stamp::new(&other, true).word()));
        }
        let unsettled = Stamp::new(&[1, 2, 3], false).word();
        assert!(!Stamp::is_same(unsettled, unsettled) && !Stamp::is_same(unsettled, plain));
        assert!(!Stamp::is_same(Stamp::UNKNOWN, Stamp::UNKNOWN));
        assert!(plain != 0 && unsettled != 0);
    }
}
