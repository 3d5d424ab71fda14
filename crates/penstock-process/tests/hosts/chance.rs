//! Chance that can be repeated: the same seed gives the same numbers, wherever and however often it is run.

/// A stream of numbers.
pub(crate) struct Chance(u64);

impl Chance {
    /// From a seed and what the stream is for, so that streams do not depend on each other.
    pub(crate) fn new(seed: u64, about: &[u64]) -> Self {
        let mut chance = Self(seed);
        for part in about {
            chance.0 = chance.next() ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        chance
    }

    /// Splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.between(0, 99) < share
    }

    /// One of several.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() as u64 - 1) as usize].clone()
    }
}
