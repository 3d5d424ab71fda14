//! A keyed permutation of `0..n`: computed for one index at a time, never stored where `n` is large.
//!
//! Above [`TABLE_MAX`] items it is a Feistel network over pairs `(left, right)` with `left < a`, `right < b` and `a * b >= n`
//! just barely: each of eight rounds adds a keyed function of one half to the other, modulo that half's size, which can be
//! undone whatever the function is. An image of `n` or more is permuted again until it is inside ("cycle walking"); since
//! `a * b - n < a`, that happens to fewer than one index in the square root of `n`.
//!
//! Eight rounds, because with four the differences of neighbours at 1,000,003 items depart from chance for some keys (by 82
//! standard deviations in one of 96 draws); with eight, 768 draws at eight sizes from 65,537 to 10^10 look like chance.
//!
//! A network is measurably uneven on few items (over 10 items, eight rounds fail a chi-square of first pairs), so up to
//! [`TABLE_MAX`] items a table shuffled by Fisher and Yates takes its place, of at most 128 KiB.

use std::sync::OnceLock;

use super::key::{Draws, Key};

/// Up to so many items an order is a shuffled table.
pub const TABLE_MAX: u64 = 65_536;

const ROUNDS: usize = 8;

/// How far the samples of a source are moved from where they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// Every block is a uniform draw of the source: the best order, the most scattered reads.
    Full,
    /// Blocks are runs of neighbours; many blocks are mixed at a time: the best reads.
    Local,
    /// As stored.
    None,
}

impl Shuffle {
    /// How many blocks, at least, have their packs mixed with each other.
    pub fn window_blocks(self) -> u64 {
        match self {
            Self::Full | Self::None => 256,
            Self::Local => 1_024,
        }
    }
}

/// One order of `0..len`, and the way back.
#[derive(Debug, Clone)]
pub struct Permutation {
    len: u64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Identity,
    Table { images: Box<[u16]>, indexes: OnceLock<Box<[u16]>> },
    Network(Box<Network>),
}

impl Permutation {
    /// The order of `0..len` that `key` stands for.
    pub fn new(key: &Key, len: u64) -> Self {
        let mut draws = key.draws();
        if len > TABLE_MAX {
            return Self { len, kind: Kind::Network(Box::new(Network::new(&mut draws, len))) };
        }
        let mut images: Box<[u16]> = (0..len).map(|item| item as u16).collect();
        draws.shuffle(&mut images);
        Self { len, kind: Kind::Table { images, indexes: OnceLock::new() } }
    }

    /// Everything where it is.
    pub fn identity(len: u64) -> Self {
        Self { len, kind: Kind::Identity }
    }

    /// The order under `key`, or everything where it is when nothing is shuffled.
    pub fn of(shuffle: Shuffle, key: &Key, len: u64) -> Self {
        match shuffle {
            Shuffle::None => Self::identity(len),
            Shuffle::Full | Shuffle::Local => Self::new(key, len),
        }
    }

    /// How many items there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing to order.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The item at `index`, or `None` when there is no such index.
    #[inline]
    pub fn at(&self, index: u64) -> Option<u64> {
        if index >= self.len {
            return None;
        }
        Some(match &self.kind {
            Kind::Identity => index,
            Kind::Table { images, .. } => u64::from(images[index as usize]),
            // The walk ends, because a cycle that starts inside `0..len` comes back inside it.
            Kind::Network(network) => walk(index, self.len, |at| network.forward(at)),
        })
    }

    /// The index at which `item` stands, or `None` when there is no such item.
    pub fn inverse(&self, item: u64) -> Option<u64> {
        if item >= self.len {
            return None;
        }
        Some(match &self.kind {
            Kind::Identity => item,
            Kind::Table { images, indexes } => {
                let indexes = indexes.get_or_init(|| inverted(images));
                u64::from(indexes[item as usize])
            }
            Kind::Network(network) => walk(item, self.len, |at| network.backward(at)),
        })
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len).filter_map(|index| self.at(index))
    }
}

#[inline]
fn walk(from: u64, len: u64, step: impl Fn(u64) -> u64) -> u64 {
    let mut at = step(from);
    while at >= len {
        at = step(at);
    }
    at
}

fn inverted(images: &[u16]) -> Box<[u16]> {
    let mut indexes = vec![0; images.len()].into_boxed_slice();
    for (index, &image) in images.iter().enumerate() {
        indexes[usize::from(image)] = index as u16;
    }
    indexes
}

/// The Feistel network over `left_size * right_size` pairs.
#[derive(Debug, Clone)]
struct Network {
    left_size: u64,
    right_size: u64,
    /// Two rounds at a time: one that changes the left half, one that changes the right. Two numbers key a round.
    rounds: [[[u64; 2]; 2]; ROUNDS / 2],
}

impl Network {
    /// `len` is above [`TABLE_MAX`], so neither size is 0. The product may be 2^64, and is never computed.
    fn new(draws: &mut Draws, len: u64) -> Self {
        let root = len.isqrt();
        let left_size = root + u64::from(root * root < len);
        let right_size = len.div_ceil(left_size);
        let rounds = std::array::from_fn(|_| [[draws.bits(), draws.bits()], [draws.bits(), draws.bits()]]);
        Self { left_size, right_size, rounds }
    }

    #[inline]
    fn forward(&self, index: u64) -> u64 {
        let (mut left, mut right) = (index / self.right_size, index % self.right_size);
        for [first, second] in &self.rounds {
            left = sum(left, spread(right, first, self.left_size), self.left_size);
            right = sum(right, spread(left, second, self.right_size), self.right_size);
        }
        left * self.right_size + right
    }

    #[inline]
    fn backward(&self, image: u64) -> u64 {
        let (mut left, mut right) = (image / self.right_size, image % self.right_size);
        for [first, second] in self.rounds.iter().rev() {
            right = difference(right, spread(left, second, self.right_size), self.right_size);
            left = difference(left, spread(right, first, self.left_size), self.left_size);
        }
        left * self.right_size + right
    }
}

/// A keyed function from any number to `0..end`. Two multiplications with a fold between them, because one alone is nearly
/// linear in a small `half`, and eight linear rounds are one linear round. The last step takes the highest bits, which
/// depend on all others.
#[inline]
fn spread(half: u64, key: &[u64; 2], end: u64) -> u64 {
    let mixed = (half ^ key[0]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32) ^ key[1]).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((u128::from(mixed) * u128::from(end)) >> 64) as u64
}

/// `a + b` modulo `end`, both below `end`, which is at most 2^32. A branch would be mispredicted every other time; what
/// wraps below 0 is large, so the smaller of the two is meant.
#[inline]
fn sum(a: u64, b: u64, end: u64) -> u64 {
    let sum = a + b;
    sum.min(sum.wrapping_sub(end))
}

/// `a - b` modulo `end`, both below `end`.
#[inline]
fn difference(a: u64, b: u64, end: u64) -> u64 {
    let difference = a.wrapping_sub(b);
    difference.min(difference.wrapping_add(end))
}

#[cfg(test)]
mod tests;
