//! Two sums with two jobs: blake3 says *which* bytes (identity), xxh3 says quickly that a block still *is* those bytes.
//!
//! [`BlockHasher`] computes both in one pass, so scanning a file costs one read whatever else is learnt from it.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// Bytes in a block, the unit in which a file is checked. The last block of a file may be shorter.
pub const BLOCK_BYTES: u64 = 65_536;

/// How many blocks a file of `bytes` bytes has.
pub fn block_count(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// The sum of one whole block.
pub fn block_sum(block: &[u8]) -> u64 {
    xxh3_64(block)
}

/// The sum of block `block` of a file of `file_bytes` bytes of which only the first bytes are given, because zeros follow them.
pub fn padded_sum(start: &[u8], block: u64, file_bytes: u64) -> u64 {
    let bytes = file_bytes.saturating_sub(block.saturating_mul(BLOCK_BYTES)).min(BLOCK_BYTES) as usize;
    if start.len() >= bytes {
        return block_sum(start);
    }
    let mut whole = vec![0; bytes];
    whole[..start.len()].copy_from_slice(start);
    block_sum(&whole)
}

/// The identity of some bytes: their blake3 hash, written `b3:<64 hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// A text that should have been a digest and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest: expected `b3:` and 64 hexadecimal digits")]
pub struct DigestParseError {
    /// What was given.
    pub text: String,
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("b3:")?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Digest {
    type Err = DigestParseError;

    fn from_str(text: &str) -> Result<Self, DigestParseError> {
        let wrong = || DigestParseError { text: text.chars().take(80).collect() };
        let hex = text.strip_prefix("b3:").filter(|hex| hex.len() == 64).ok_or_else(wrong)?.as_bytes();
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = (hex_digit(pair[0]).ok_or_else(wrong)? << 4) | hex_digit(pair[1]).ok_or_else(wrong)?;
        }
        Ok(Self(hash))
    }
}

/// Only lower case, so that a digest has one spelling.
fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The identity of bytes that arrive in order, in pieces of any size.
#[derive(Default)]
pub struct DigestStream {
    /// Identity of everything so far.
    whole: blake3::Hasher,
    /// Bytes seen so far.
    bytes: u64,
}

impl DigestStream {
    /// Takes the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.whole.update(piece);
        self.bytes += piece.len() as u64;
    }

    /// The identity of everything, and how many bytes that was.
    pub fn finish(self) -> (Digest, u64) {
        (Digest(*self.whole.finalize().as_bytes()), self.bytes)
    }

    /// The identity of everything that a reader still gives, and how many bytes that was.
    pub fn read(mut reader: impl std::io::Read) -> std::io::Result<(Digest, u64)> {
        let mut stream = Self::default();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(stream.finish()),
                Ok(count) => stream.update(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sums a file that arrives in order, in pieces of any size.
pub struct BlockHasher {
    /// Identity of everything so far.
    whole: blake3::Hasher,
    /// The block under way; only used when a block arrives in several pieces.
    part: Xxh3Default,
    /// Bytes of the block under way that `part` has seen; always below `BLOCK_BYTES`.
    part_bytes: usize,
    /// Bytes seen in all.
    bytes: u64,
}

impl Default for BlockHasher {
    fn default() -> Self {
        Self { whole: blake3::Hasher::new(), part: Xxh3Default::new(), part_bytes: 0, bytes: 0 }
    }
}

impl BlockHasher {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes seen so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next bytes and appends the sum of each block they complete to `sums`.
    pub fn update(&mut self, mut piece: &[u8], sums: &mut Vec<u64>) {
        self.whole.update(piece);
        self.bytes += piece.len() as u64;
        const BLOCK: usize = BLOCK_BYTES as usize;
        if self.part_bytes > 0 {
            let (head, rest) = piece.split_at(piece.len().min(BLOCK - self.part_bytes));
            self.part.update(head);
            self.part_bytes += head.len();
            piece = rest;
            if self.part_bytes == BLOCK {
                sums.push(self.part.digest());
                self.part_bytes = 0;
            }
        }
        let mut blocks = piece.chunks_exact(BLOCK);
        sums.extend(blocks.by_ref().map(block_sum));
        if !blocks.remainder().is_empty() {
            self.part.reset();
            self.part.update(blocks.remainder());
            self.part_bytes = blocks.remainder().len();
        }
    }

    /// The sum of the last block if it is a short one, and the identity of the whole.
    pub fn finish(self) -> (Option<u64>, Digest) {
        let last = (self.part_bytes > 0).then(|| self.part.digest());
        (last, Digest(*self.whole.finalize().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_shot(bytes: &[u8]) -> (Vec<u64>, Digest) {
        (bytes.chunks(BLOCK_BYTES as usize).map(block_sum).collect(), Digest::of(bytes))
    }

    fn in_pieces(bytes: &[u8], cuts: &[usize]) -> (Vec<u64>, Digest) {
        let (mut hasher, mut sums, mut at) = (BlockHasher::new(), Vec::new(), 0);
        for cut in cuts.iter().chain([&bytes.len()]) {
            let next = (at + cut).min(bytes.len());
            hasher.update(&bytes[at..next], &mut sums);
            at = next;
        }
        hasher.update(&bytes[at..], &mut sums);
        let (last, digest) = hasher.finish();
        sums.extend(last);
        (sums, digest)
    }

    #[test]
    fn a_digest_has_one_spelling_and_comes_back_from_it() {
        let digest = Digest::of(b"penstock");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!(digest.to_string().to_uppercase().parse::<Digest>().is_err());
        assert!("b3:12".parse::<Digest>().is_err());
        assert_eq!(Digest::of(b"").to_string()[..11], *"b3:af1349b9");
    }

    #[test]
    fn an_empty_file_has_no_blocks() {
        assert_eq!(BlockHasher::new().finish(), (None, Digest::of(b"")));
        assert_eq!((block_count(0), block_count(1), block_count(65_536), block_count(65_537)), (0, 1, 1, 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn pieces_of_any_size_give_the_same_sums(seed in any::<u8>(), bytes in 0usize..300_000, cuts in prop::collection::vec(0usize..140_000, 0..6)) {
            let bytes: Vec<u8> = (0..bytes).map(|i| (i as u8).wrapping_mul(31) ^ seed ^ (i >> 8) as u8).collect();
            prop_assert_eq!(in_pieces(&bytes, &cuts), one_shot(&bytes));
        }
    }
}
