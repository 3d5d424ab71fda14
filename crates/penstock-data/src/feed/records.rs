//! Digests of rows that are no tokens: the bytes that stand for a row's values, hashed with the row's position.
//!
//! The bytes depend on the values alone. Every value begins with a letter for its kind and says how long it is, so that no two
//! values have the same bytes; fields go by name. Digests add up as those of token batches do, so that the lanes of a step
//! sum to the step.

use xxhash_rust::xxh3::Xxh3;

/// Values of more bytes are hashed where they are; smaller ones are copied first, since hashing few bytes at a time is slow.
const COPIED_BYTES_MAX: usize = 1 << 12;

/// Takes the values of rows, one after another, and sums the digests of the rows.
pub struct RowDigests {
    /// Position of the row that is being taken.
    position: u64,
    hasher: Xxh3,
    /// Bytes of this row that wait to be hashed.
    waiting: Vec<u8>,
    sum: u128,
    /// Bytes of all rows, positions not counted.
    size_bytes: u64,
}

impl RowDigests {
    /// For rows that stand at `position` and after it.
    pub fn new(position: u64) -> Self {
        let mut digests = Self { position, hasher: Xxh3::new(), waiting: Vec::new(), sum: 0, size_bytes: 0 };
        digests.begin_row();
        digests
    }

    /// Bytes that stand as they are: an encoded value, or a part of one.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        if bytes.len() > COPIED_BYTES_MAX {
            self.flush();
            self.hasher.update(bytes);
        } else {
            self.waiting.extend_from_slice(bytes);
        }
    }

    /// No value.
    pub fn null(&mut self) {
        self.short(b"n");
    }

    /// True or false.
    pub fn boolean(&mut self, value: bool) {
        self.short(if value { b"t" } else { b"f" });
    }

    /// A whole number, which is written in digits.
    pub fn integer(&mut self, value: i64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value);
        self.headed(b'i', digits.len());
        self.short(digits.as_bytes());
    }

    /// A number of 64 bits with a fraction.
    pub fn float(&mut self, value: f64) {
        let mut bytes = [b'd'; 9];
        bytes[1..].copy_from_slice(&value.to_le_bytes());
        self.short(&bytes);
    }

    /// Text as UTF-8.
    pub fn text(&mut self, value: &[u8]) {
        self.headed(b's', value.len());
        self.raw(value);
    }

    /// Bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.headed(b'b', value.len());
        self.raw(value);
    }

    /// A list; its values follow.
    pub fn list(&mut self, length: usize) {
        self.headed(b'l', length);
    }

    /// A mapping; its names (as text) and values follow, by the order of names.
    pub fn mapping(&mut self, length: usize) {
        self.headed(b'm', length);
    }

    /// The row has no further values; the next begins.
    pub fn end_row(&mut self) {
        self.flush();
        self.sum = self.sum.wrapping_add(self.hasher.digest128());
        self.position += 1;
        self.begin_row();
    }

    /// The sum of the digests of all rows that have ended, and the bytes that stand for their values.
    pub fn finish(self) -> (u128, u64) {
        (self.sum, self.size_bytes)
    }

    fn begin_row(&mut self) {
        self.hasher.reset();
        self.waiting.extend_from_slice(&self.position.to_le_bytes());
    }

    fn headed(&mut self, kind: u8, length: usize) {
        if length < 10 {
            return self.short(&[kind, b'0' + length as u8, b':']);
        }
        let mut digits = itoa::Buffer::new();
        self.short(&[kind]);
        self.short(digits.format(length).as_bytes());
        self.short(b":");
    }

    fn short(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        self.waiting.extend_from_slice(bytes);
    }

    fn flush(&mut self) {
        self.hasher.update(&self.waiting);
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(position: u64, rows: &[Vec<u8>]) -> u128 {
        let mut digests = RowDigests::new(position);
        for row in rows {
            digests.raw(row);
            digests.end_row();
        }
        digests.finish().0
    }

    proptest! {
        /// Goal: lanes add up to the step. Method: cut rows anywhere.
        #[test]
        fn digests_of_parts_add_up(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..20), cut in 0..20_usize) {
            let cut = cut % (rows.len() + 1);
            let sum = digest(7, &rows[..cut]).wrapping_add(digest(7 + cut as u64, &rows[cut..]));
            prop_assert_eq!(sum, digest(7, &rows));
        }

        /// Goal: how bytes come does not matter. Method: cut one row into pieces of any size.
        #[test]
        fn pieces_of_a_row_are_the_row(length in 0..20_000_usize, cut in 0..20_000_usize) {
            let row: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (first, second) = row.split_at(cut.min(length));
            let mut digests = RowDigests::new(3);
            digests.raw(first);
            digests.raw(second);
            digests.end_row();
            prop_assert_eq!(digests.finish(), (digest(3, std::slice::from_ref(&row)), length as u64));
        }
    }

    #[test]
    fn a_digest_changes_with_position_and_bytes() {
        assert_ne!(digest(0, &[vec![1, 2]]), digest(1, &[vec![1, 2]]));
        assert_ne!(digest(0, &[vec![1, 2]]), digest(0, &[vec![1, 3]]));
        assert_ne!(digest(0, &[vec![1], vec![2]]), digest(0, &[vec![2], vec![1]]));
        assert_eq!(digest(0, &[]), 0);
    }

    #[test]
    fn values_are_the_bytes_that_the_specification_says() {
        let mut digests = RowDigests::new(0);
        digests.mapping(2);
        digests.text("a".as_bytes());
        digests.list(4);
        digests.null();
        digests.boolean(true);
        digests.integer(-12);
        digests.float(1.5);
        digests.text("b".as_bytes());
        digests.bytes(&[0, 255]);
        digests.end_row();
        let mut row = b"m2:s1:al4:nti3:-12d".to_vec();
        row.extend_from_slice(&1.5_f64.to_le_bytes());
        row.extend_from_slice(b"s1:bb2:\x00\xff");
        let length = row.len() as u64;
        assert_eq!(digests.finish(), (digest(0, &[row]), length));
    }
}
