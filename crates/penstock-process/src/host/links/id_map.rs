//! Maps whose keys are numbers of hosts and links: looked up several times for every message, so hashing them is one multiplication.
//!
//! Numbers of hosts are random, and peers have the job's key; nobody can choose numbers that collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// An odd number whose bits look random.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map by numbers.
pub(in crate::host) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Hashes one number.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::host) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(SPREAD);
    }
}
