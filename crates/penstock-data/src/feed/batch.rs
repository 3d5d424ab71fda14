//! One batch of one lane: tokens, boundaries, where everything came from, and what it hashes to.
//!
//! A row's digest covers its position in the stream, its tokens, its boundaries and its mask, where its source has one. A batch's digest is the sum of its rows'
//! digests, so the digests of lanes add up to the digest of the whole step however the step was dealt.

use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::Xxh3;

use super::buffer::Buffer;
use super::part::RowBytes;

/// A stretch of one sample inside one row of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Row of the batch.
    pub row: u32,
    /// First token in the row.
    pub at: u32,
    /// Tokens.
    pub length: u32,
    /// Source of the recipe.
    pub source: u32,
    /// Row of the source's version.
    pub sample: u64,
    /// First token in the sample.
    pub start: u32,
    /// How often the source was read before.
    pub epoch: u64,
}

/// The rows that one lane receives of one step. Its buffers go back to where they came from when the last reference is gone.
pub struct Batch {
    /// Step of the recipe.
    pub step: u64,
    /// Position in the stream of the first row.
    pub position: u64,
    /// Rows.
    pub rows: usize,
    /// Tokens of each row.
    pub length: usize,
    /// Bytes of a token.
    pub item_bytes: usize,
    pub(super) tokens: Buffer,
    /// A byte per token, 1 where it counts in the loss; nothing when no source has a mask.
    pub(super) mask: Option<Buffer>,
    /// Every stretch of every row, in order; padding has none.
    pub origins: Vec<Origin>,
    /// Sum of the rows' digests.
    pub digest: u128,
    /// Tokens that are padding.
    pub padding: u64,
}

impl Batch {
    /// The tokens, row after row.
    pub fn tokens(&self) -> &[u8] {
        &self.tokens
    }

    /// A byte per token, row after row, 1 where it counts in the loss; `None` when no source has a mask.
    pub fn mask(&self) -> Option<&[u8]> {
        self.mask.as_deref()
    }

    /// What a row is made of, in order.
    pub fn origins_of(&self, row: u32) -> &[Origin] {
        let first = self.origins.partition_point(|origin| origin.row < row);
        let rest = &self.origins[first..];
        &rest[..rest.partition_point(|origin| origin.row == row)]
    }

    /// Marks every token that is not padding with 1 in `into`, which has a 0 for each token, row after row.
    pub fn mark_tokens(&self, into: &mut [u8]) {
        for origin in &self.origins {
            let first = origin.row as usize * self.length + origin.at as usize;
            into[first..first + origin.length as usize].fill(1);
        }
    }

    /// Where documents begin and end in the tokens of all rows taken as one sequence, padding being documents of its own.
    pub fn boundaries(&self) -> Vec<i32> {
        let mut ends = vec![0];
        let mut put = |end: u64| {
            let end = i32::try_from(end).unwrap_or(i32::MAX);
            if ends.last() != Some(&end) {
                ends.push(end);
            }
        };
        for origin in &self.origins {
            let first = u64::from(origin.row) * self.length as u64 + u64::from(origin.at);
            put(first);
            put(first + u64::from(origin.length));
        }
        for row in 1..=self.rows as u64 {
            put_sorted(&mut ends, row * self.length as u64);
        }
        ends
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, length, bytes) = (self.rows, self.length, self.item_bytes);
        write!(out, "batch of step {}: {rows} x {length} x {bytes} bytes, {:032x}", self.step, self.digest)
    }
}

/// Row ends are boundaries too; they are few, so they are merged in afterwards.
fn put_sorted(ends: &mut Vec<i32>, end: u64) {
    let end = i32::try_from(end).unwrap_or(i32::MAX);
    if let Err(place) = ends.binary_search(&end) {
        ends.insert(place, end);
    }
}

/// Buffers of batches that nobody refers to any more, kept to be filled again.
#[derive(Default)]
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// How many buffers are kept at most; more are given back to the system.
const FREE_MAX: usize = 32;
/// How many are kept however large they are, and how many bytes of further ones.
const FREE_MIN: usize = 2;
const FREE_BYTES_MAX: usize = 8 << 20;

impl Pool {
    /// A buffer of `bytes`, its content unspecified.
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = free.pop().unwrap_or_default();
        drop(free);
        buffer.resize(bytes, 0);
        buffer
    }

    pub(super) fn give(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = free.iter().map(Vec::capacity).sum();
        let room = free.len() < FREE_MIN || held + buffer.capacity() <= FREE_BYTES_MAX;
        if free.len() < FREE_MAX && room && buffer.capacity() > 0 {
            free.push(buffer);
        }
    }
}

/// Collects rows into a batch.
pub struct BatchBuilder {
    batch: Batch,
    pool: Arc<Pool>,
}

impl BatchBuilder {
    /// An empty batch for `rows` rows of `length` tokens.
    pub fn new(step: u64, position: u64, shape: (usize, usize, usize), pool: &Arc<Pool>) -> Self {
        let (rows, length, item_bytes) = shape;
        let tokens = Buffer::pooled(pool, rows * length * item_bytes);
        let origins = Vec::with_capacity(rows * 4);
        let (mask, digest, padding) = (None, 0, 0);
        let batch =
            Batch { step, position, rows, length, item_bytes, tokens, mask, origins, digest, padding };
        Self { batch, pool: Arc::clone(pool) }
    }

    /// The same with a mask beside the tokens.
    pub fn with_mask(mut self) -> Self {
        self.batch.mask = Some(Buffer::pooled(&self.pool, self.batch.rows * self.batch.length));
        self
    }

    /// The bytes of one row, to be filled, in the batch's own width.
    pub fn row(&mut self, row: usize) -> RowBytes<'_> {
        let (length, bytes) = (self.batch.length, self.batch.length * self.batch.item_bytes);
        RowBytes {
            tokens: &mut self.batch.tokens.filling()[row * bytes..(row + 1) * bytes],
            mask: self.batch.mask.as_mut().map(|mask| &mut mask.filling()[row * length..(row + 1) * length]),
        }
    }

    /// Says that a row is filled: what it is made of, where in the stream it stands, and whether its mask is its own.
    pub fn close_row(&mut self, row: usize, position: u64, origins: &[Origin], masked: bool) {
        let used: u64 = origins.iter().map(|origin| u64::from(origin.length)).sum();
        self.batch.padding += (self.batch.length as u64).saturating_sub(used);
        let mut hasher = Xxh3::new();
        hasher.update(&position.to_le_bytes());
        for origin in origins {
            hasher.update(&origin.length.to_le_bytes());
        }
        let bytes = self.row(row);
        hasher.update(bytes.tokens);
        if let Some(mask) = bytes.mask.filter(|_| masked) {
            hasher.update(mask);
        }
        self.batch.digest = self.batch.digest.wrapping_add(hasher.digest128());
        self.batch.origins.extend_from_slice(origins);
    }

    /// The finished batch.
    pub fn finish(self) -> Batch {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: usize = 6;

    /// A batch of rows that stand at `position` and on: the first `used` tokens of each are `used` documents of one token.
    fn batch(position: u64, rows: &[u32]) -> Batch {
        let mut builder = BatchBuilder::new(0, position, (rows.len(), LENGTH, 2), &Arc::default());
        for (row, &used) in rows.iter().enumerate() {
            let at = position + row as u64;
            let bytes = builder.row(row).tokens;
            bytes.fill(0);
            bytes.chunks_exact_mut(2).take(used as usize).for_each(|token| token[0] = at as u8 + 1);
            let origins: Vec<Origin> = (0..used)
                .map(|at| Origin { row: row as u32, at, length: 1, source: 0, sample: 0, start: 0, epoch: 0 })
                .collect();
            builder.close_row(row, at, &origins, false);
        }
        builder.finish()
    }

    proptest! {
        /// Goal: digests of lanes add up to the step's. Method: cut any batch into any parts.
        #[test]
        fn digests_of_parts_add_up(rows in prop::collection::vec(0..=LENGTH as u32, 1..20), cuts in prop::collection::vec(0..20_usize, 0..5)) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (rows.len() + 1)).chain([0, rows.len()]).collect();
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|cut| batch(100 + cut[0] as u64, &rows[cut[0]..cut[1]]));
            let (digest, padding) = parts.fold((0_u128, 0), |(digest, padding), part| {
                (digest.wrapping_add(part.digest), padding + part.padding)
            });
            let all = batch(100, &rows);
            prop_assert_eq!((digest, padding), (all.digest, all.padding));
        }

        /// Goal: boundaries are those of documents, padding and rows. Method: mark every end by hand.
        #[test]
        fn boundaries_are_the_ends_of_documents_padding_and_rows(rows in prop::collection::vec(0..=LENGTH as u32, 1..20)) {
            let mut ends = vec![0];
            for (row, &used) in rows.iter().enumerate() {
                ends.extend((1..=used as usize).map(|end| (row * LENGTH + end) as i32));
                if (used as usize) < LENGTH {
                    ends.push(((row + 1) * LENGTH) as i32);
                }
            }
            prop_assert_eq!(batch(0, &rows).boundaries(), ends);
        }
    }

    #[test]
    fn a_digest_changes_with_tokens_boundaries_and_position() {
        let digest_of = |position, lengths: &[u32], token| {
            let mut builder = BatchBuilder::new(0, position, (1, LENGTH, 2), &Arc::default());
            builder.row(0).tokens.fill(token);
            let origin = |length| Origin { row: 0, at: 0, length, source: 0, sample: 0, start: 0, epoch: 0 };
            let origins: Vec<Origin> = lengths.iter().map(|&length| origin(length)).collect();
            builder.close_row(0, position, &origins, false);
            builder.finish().digest
        };
        let all = [
            digest_of(0, &[6], 1),
            digest_of(1, &[6], 1),
            digest_of(0, &[3, 3], 1),
            digest_of(0, &[2, 4], 1),
            digest_of(0, &[6], 2),
        ];
        for (place, digest) in all.iter().enumerate() {
            assert!(!all[..place].contains(digest), "{place}");
        }
        assert_eq!(digest_of(0, &[6], 1), all[0]);
    }

    #[test]
    fn a_mask_enters_the_digest_of_rows_that_have_one_and_of_no_others() {
        let batch_of = |mask: Option<u8>, own| {
            let mut builder = BatchBuilder::new(0, 0, (1, LENGTH, 2), &Arc::default());
            if let Some(byte) = mask {
                builder = builder.with_mask();
                builder.row(0).mask.unwrap().fill(byte);
            }
            builder.row(0).tokens.fill(7);
            builder.close_row(0, 0, &[], own);
            builder.finish()
        };
        let plain = batch_of(None, false);
        assert_eq!((batch_of(Some(1), false).digest, plain.mask()), (plain.digest, None));
        assert_ne!(batch_of(Some(1), true).digest, plain.digest);
        assert_ne!(batch_of(Some(1), true).digest, batch_of(Some(0), true).digest);
        assert_eq!(batch_of(Some(1), true).mask(), Some(&[1; LENGTH][..]));
    }

    #[test]
    fn a_buffer_goes_back_when_its_batch_is_gone_and_not_before() {
        let pool = Arc::new(Pool::default());
        let make = || BatchBuilder::new(0, 0, (4, LENGTH, 2), &pool).finish();
        let (first, second) = (make(), make());
        let place = first.tokens().as_ptr();
        assert_ne!(place, second.tokens().as_ptr());
        assert_eq!(pool.free.lock().unwrap().len(), 0);
        drop(first);
        assert_eq!(pool.free.lock().unwrap().len(), 1);
        assert_eq!(make().tokens().as_ptr(), place);
        let many: Vec<Batch> = (0..2 * FREE_MAX).map(|_| make()).collect();
        drop(many);
        assert_eq!(pool.free.lock().unwrap().len(), FREE_MAX);
    }
}
