//! Frames of step files: each says where it begins, how long it is and what it sums to, so that a reader finds the next
//! whole one behind damage.

use crate::spool::check;

/// Every frame begins with it.
pub const MARK: &[u8; 4] = b"PSTF";
/// Mark, length, check.
pub const HEAD_BYTES: usize = 12;
/// A block of 4,096 rows and 1,024 columns that does not compress at all.
pub const PAYLOAD_BYTES_MAX: usize = 48 << 20;

/// What a frame holds; the first byte of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// Rows as compressed columns.
    Block = 1,
    /// Sums over rows that were thinned.
    RollUp = 2,
    /// A checkpoint before a step was committed.
    Commit = 3,
    /// How many rows were lost so far.
    Lost = 4,
    /// The table was closed in order.
    Closed = 5,
    /// Several clocks at one moment.
    Anchor = 6,
    /// The columns of the raw rows that follow.
    Columns = 16,
    /// A step begins.
    Begin = 17,
    /// A raw row.
    Row = 18,
    /// A value of an earlier row.
    Patch = 19,
}

impl Content {
    /// Of a payload's first byte.
    pub fn of(byte: u8) -> Option<Content> {
        use Content::{Anchor, Begin, Block, Closed, Columns, Commit, Lost, Patch, RollUp, Row};
        [Block, RollUp, Commit, Lost, Closed, Anchor, Columns, Begin, Row, Patch]
            .into_iter()
            .find(|content| *content as u8 == byte)
    }
}

/// Appends a frame around `payload`, which begins with its content.
pub fn push(into: &mut Vec<u8>, payload: &[u8]) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
    into.extend_from_slice(MARK);
    into.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    into.extend_from_slice(&check(payload).to_le_bytes());
    into.extend_from_slice(payload);
}

/// A payload that begins with its content and holds integers.
pub fn integers(content: Content, values: &[i64]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(1 + 8 * values.len());
    payload.push(content as u8);
    values.iter().for_each(|value| payload.extend_from_slice(&value.to_le_bytes()));
    payload
}

/// The integers of such a payload, after its content.
pub fn integers_of(payload: &[u8]) -> Vec<i64> {
    payload[1..].chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect()
}

/// A piece of a file that is no whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it begins.
    pub offset: u64,
    /// What is wrong, in words.
    pub reason: String,
}

/// Walks over the frames of `bytes`, from `offset` on.
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What was passed over.
    pub faults: Vec<Fault>,
}

impl<'a> Frames<'a> {
    /// Begins at a place.
    pub fn new(bytes: &'a [u8], at: usize) -> Frames<'a> {
        Frames { bytes, at: at.min(bytes.len()), faults: Vec::new() }
    }

    fn whole_at(&self, at: usize) -> Result<&'a [u8], &'static str> {
        let head = self.bytes.get(at..at + HEAD_BYTES).ok_or("the file ends inside of a frame's head")?;
        if &head[..4] != MARK {
            return Err("no frame begins here");
        }
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let sum = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if length == 0 || length > PAYLOAD_BYTES_MAX {
            return Err("a frame says an impossible length");
        }
        let payload = self
            .bytes
            .get(at + HEAD_BYTES..at + HEAD_BYTES + length)
            .ok_or("the file ends inside of a frame")?;
        if check(payload) != sum {
            return Err("a frame fails its check");
        }
        Ok(payload)
    }
}

impl<'a> Iterator for Frames<'a> {
    /// Where the frame begins, and its payload.
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let begin = self.at;
        let reason = match self.whole_at(begin) {
            Ok(payload) => {
                self.at = begin + HEAD_BYTES + payload.len();
                return Some((begin as u64, payload));
            }
            Err(reason) => reason,
        };
        self.faults.push(Fault { offset: begin as u64, reason: reason.to_owned() });
        let mut at = begin + 1;
        while let Some(next) = self.bytes.get(at..).and_then(find_mark) {
            if let Ok(payload) = self.whole_at(at + next) {
                self.at = at + next + HEAD_BYTES + payload.len();
                return Some(((at + next) as u64, payload));
            }
            at += next + 1;
        }
        self.at = self.bytes.len();
        None
    }
}

fn find_mark(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len()).position(|window| window == MARK)
}
