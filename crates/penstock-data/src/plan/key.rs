//! Where randomness comes from: a key is the hash of what it is for.
//!
//! A seed is never added to a number: `seed + epoch` would make epoch 1 of seed 0 the same as epoch 0 of seed 1. Instead a
//! [`Key`] is blake3 over a label and length-prefixed parts, so that no two different purposes share one. What a key
//! unfolds into is written here and not taken from a crate, because a new version of it would change the order of every
//! stream; golden values in the tests notice that.

use penstock_io::Digest;

/// Changes with the rules that turn keys into orders, so that no stream is ever ordered by a mix of two rules.
const DOMAIN: &[u8] = b"penstock.plan.1";

/// What a key is derived from, one item of it.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// A seed, an epoch, a block.
    Number(u64),
    /// A digest or a name.
    Bytes(&'a [u8]),
}

impl From<u64> for Part<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a Digest> for Part<'a> {
    fn from(digest: &'a Digest) -> Self {
        Self::Bytes(digest.as_bytes())
    }
}

/// The origin of one order: 128 bits that depend on everything it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// The key of a purpose, named by `label` and told apart by `parts`.
    pub fn of(label: &str, parts: &[Part<'_>]) -> Self {
        Self::hash(&[], label, parts)
    }

    /// The key under which samples are put into blocks: fixed for a source, whatever the seed and the epoch.
    pub fn members(source: &Digest) -> Self {
        Self::of("members", &[source.into()])
    }

    /// The key from which all orders of one epoch of a source derive.
    pub fn epoch(seed: u64, source: &Digest, epoch: u64) -> Self {
        Self::of("epoch", &[seed.into(), source.into(), epoch.into()])
    }

    /// The key from which the layout of all periods of a mixture derives.
    pub fn mixture(seed: u64) -> Self {
        Self::of("mixture", &[seed.into()])
    }

    /// A key for one purpose inside this one's.
    pub fn derive(&self, label: &str, parts: &[Part<'_>]) -> Self {
        let mut own = [0; 16];
        own[..8].copy_from_slice(&self.high.to_le_bytes());
        own[8..].copy_from_slice(&self.low.to_le_bytes());
        Self::hash(&own, label, parts)
    }

    /// The endless sequence of numbers that this key stands for.
    pub fn draws(&self) -> Draws {
        let Self { high, low } = *self;
        let other = self.derive("draws", &[]);
        Draws { state: [high, low, other.high, other.low] }
    }

    fn hash(parent: &[u8], label: &str, parts: &[Part<'_>]) -> Self {
        let mut text = Vec::with_capacity(160);
        let mut put = |bytes: &[u8]| {
            text.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            text.extend_from_slice(bytes);
        };
        put(DOMAIN);
        put(parent);
        put(label.as_bytes());
        for part in parts {
            match part {
                Part::Number(number) => put(&number.to_le_bytes()),
                // A mark of five bytes cannot be a number, which has eight.
                Part::Bytes(bytes) => {
                    put(b"bytes");
                    put(bytes);
                }
            }
        }
        let digest = Digest::of(&text);
        let [high, low] = [0, 8].map(|from| {
            digest.as_bytes()[from..from + 8].iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
        });
        Self { high, low }
    }
}

/// Random numbers from a key: xoshiro256++ (Blackman and Vigna 2019), the same on every machine.
#[derive(Debug, Clone)]
pub struct Draws {
    state: [u64; 4],
}

impl Draws {
    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        // The order above matters: `a` and `b` take the new `d` and `c`, and the shift the old `b`.
        result
    }

    /// A number of `0..end`, each equally likely; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let mut wide = u128::from(self.bits()) * u128::from(end);
        if (wide as u64) < end {
            // Lemire 2019: of the 2^64 draws, the first 2^64 mod `end` of each stripe are one too many.
            let surplus = end.wrapping_neg() % end;
            while (wide as u64) < surplus {
                wide = u128::from(self.bits()) * u128::from(end);
            }
        }
        (wide >> 64) as u64
    }

    /// Puts `items` into one of their orders, each equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plan::statistics::chi_square;

    #[test]
    fn keys_are_told_apart_by_everything_they_are_for() {
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        let mut keys = HashSet::new();
        for seed in 0..20 {
            for epoch in 0..20 {
                keys.insert(Key::epoch(seed, &one, epoch));
                keys.insert(Key::epoch(seed, &two, epoch));
                keys.insert(Key::mixture(seed).derive("period", &[epoch.into()]));
            }
        }
        keys.insert(Key::members(&one));
        keys.insert(Key::of("members", &[]));
        keys.insert(Key::of("ab", &[Part::Bytes(b"c")]));
        keys.insert(Key::of("a", &[Part::Bytes(b"bc")]));
        keys.insert(Key::of("a", &[Part::Bytes(&7_u64.to_le_bytes())]));
        keys.insert(Key::of("a", &[Part::Number(7)]));
        assert_eq!(keys.len(), 1206);
    }

    #[test]
    fn draws_are_those_of_xoshiro() {
        // The reference program's first outputs from the state 1, 2, 3, 4.
        let mut draws = Draws { state: [1, 2, 3, 4] };
        let bits = [draws.bits(), draws.bits(), draws.bits(), draws.bits()];
        assert_eq!(bits, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn golden_keys_and_draws() {
        let key = Key::epoch(17, &Digest::of(b"web"), 3);
        let mut draws = key.draws();
        assert_eq!(key, Key { high: 10_988_293_995_196_745_470, low: 12_408_728_141_205_570_190 });
        assert_eq!([draws.bits(), draws.bits()], [17_876_915_195_215_757_313, 8_305_566_993_962_759_607]);
        assert_eq!([draws.below(1_000), draws.below(3)], [528, 1]);
    }

    #[test]
    fn every_number_below_the_end_is_equally_likely() {
        for end in [1, 2, 3, 10, 1_000] {
            let mut draws = Key::of("test", &[end.into()]).draws();
            let mut seen = vec![0; end as usize];
            (0..end * 1_000).for_each(|_| seen[draws.below(end) as usize] += 1);
            assert!(chi_square(&seen).abs() < 4.5, "{end}: {}", chi_square(&seen));
        }
        assert_eq!(Key::of("test", &[]).draws().below(0), 0);
        assert!((0..1_000).all(|n| Key::of("test", &[n.into()]).draws().below(u64::MAX) < u64::MAX));
    }
}
