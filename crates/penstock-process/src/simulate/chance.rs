//! Chance that can be repeated: the same seed gives the same numbers, wherever and however often it is run.

/// A stream of numbers.
pub(super) struct Chance(u64);

impl Chance {
    /// From a seed and what the stream is for, so that streams do not depend on each other.
    pub(super) fn new(seed: u64, about: &[u64]) -> Self {
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

    /// At least 0 and less than 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// How long until the next event of a process that has `per_ms` events a millisecond.
    pub(super) fn gap_ms(&mut self, per_ms: f64) -> f64 {
        -(1.0 - self.share()).ln() / per_ms
    }
}
