//! A batch as bytes: written once, looked at by others where it lies.
//!
//! A header of fixed size, then tokens, mask and origins, each at a multiple of 64 bytes, all little endian. Whoever reads takes
//! nothing on trust: every number of the header is checked against every other and against the bytes that are there before
//! anything is looked at, so bytes that are cut, torn or made up are an error and never a wrong batch. What travels over a network
//! carries a hash of its body too; what lies in the memory of one host does not need one.
//!
//! | byte | what |
//! |---|---|
//! | 0 | `PENBATCH` |
//! | 8 | version of this layout, u32; flags, u32: 1 = the body's hash is stated |
//! | 16 | step, position, rows, length, u64 each |
//! | 48 | bytes of a token, u64; tokens that are padding, u64 |
//! | 64 | digest, u128 |
//! | 80 | bytes of tokens, of mask, of origins, u64 each |
//! | 104 | xxh3 of tokens, mask and origins, u64; 0 where it is not stated |
//! | 112 | zeros |
//! | 120 | xxh3 of everything before, u64 |
//!
//! An origin is 40 bytes: row, at, length, source (u32 each), sample (u64), start (u32), zeros (u32), epoch (u64).

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::FeedError;
use super::batch::{Batch, Origin};
use super::buffer::{Buffer, Memory};

/// What a batch begins with.
pub const MAGIC: [u8; 8] = *b"PENBATCH";
/// Of the layout that is written here, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 128;
/// Every section begins at a multiple of this.
pub const ALIGNMENT: usize = 64;
const ORIGIN_BYTES: usize = 40;
const BODY_HASHED: u32 = 1;
/// A token has at most so many bytes.
const ITEM_BYTES_MAX: u64 = 8;

/// A batch in pieces that can be sent one after the other; tokens and mask are those of the batch itself.
pub struct Parts<'a> {
    /// The header.
    pub header: [u8; HEADER_BYTES],
    /// Tokens, row after row.
    pub tokens: &'a [u8],
    /// A byte per token, or nothing.
    pub mask: &'a [u8],
    /// Where everything came from.
    pub origins: Vec<u8>,
}

impl Parts<'_> {
    /// All bytes in order, with the zeros between sections.
    pub fn slices(&self) -> [&[u8]; 6] {
        let sections = (self.tokens, self.mask, &self.origins[..]);
        [&self.header, sections.0, gap(sections.0.len()), sections.1, gap(sections.1.len()), sections.2]
    }
}

/// How many bytes a batch has.
pub fn bytes_of(batch: &Batch) -> usize {
    let mask = batch.mask().map_or(0, <[u8]>::len);
    HEADER_BYTES + aligned(batch.tokens().len()) + aligned(mask) + batch.origins.len() * ORIGIN_BYTES
}

/// The batch as pieces, with a hash of its body: for networks.
pub fn parts(batch: &Batch) -> Parts<'_> {
    let mut parts = bare_parts(batch);
    parts.header = header(batch, Some(body_hash([parts.tokens, parts.mask, &parts.origins])));
    parts
}

/// The batch as pieces, without a hash of its body: for other processes of this host.
pub fn bare_parts(batch: &Batch) -> Parts<'_> {
    let mask = batch.mask().unwrap_or_default();
    let mut origins = Vec::with_capacity(batch.origins.len() * ORIGIN_BYTES);
    batch.origins.iter().for_each(|origin| origins.extend_from_slice(&origin_bytes(origin)));
    Parts { header: header(batch, None), tokens: batch.tokens(), mask, origins }
}

/// Writes the batch into memory that has [`bytes_of`] it, without a hash of its body: for other processes of this host.
pub fn write(batch: &Batch, into: &mut [u8]) -> Result<(), FeedError> {
    let (expected, found) = (bytes_of(batch), into.len());
    if expected != found {
        return Err(wrong(format!("it has {expected} bytes, but there is room for {found}")));
    }
    let mask = batch.mask().unwrap_or_default();
    let (head, rest) = into.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header(batch, None));
    let rest = put(rest, batch.tokens());
    let rest = put(rest, mask);
    for (place, origin) in rest.chunks_exact_mut(ORIGIN_BYTES).zip(&batch.origins) {
        place.copy_from_slice(&origin_bytes(origin));
    }
    Ok(())
}

/// The batch that lies in some memory. Tokens and mask stay where they are, as aligned as the memory is.
pub fn read(memory: Memory) -> Result<Batch, FeedError> {
    let bytes = (*memory).as_ref();
    let head = Head::read(bytes)?;
    let [tokens, mask, origins] = head.sections(bytes.len())?;
    if let Some(expected) = head.body {
        let found = body_hash([&bytes[tokens.clone()], &bytes[mask.clone()], &bytes[origins.clone()]]);
        if found != expected {
            return Err(wrong(format!("its body hashes to {found:016x} instead of {expected:016x}")));
        }
    }
    let origins = read_origins(&bytes[origins], &head)?;
    let buffer = |range| Buffer::shared(&memory, range).ok_or_else(|| wrong("a section is cut off".into()));
    let mask = if mask.is_empty() { None } else { Some(buffer(mask)?) };
    Ok(Batch {
        step: head.step,
        position: head.position,
        rows: head.rows as usize,
        length: head.length as usize,
        item_bytes: head.item_bytes as usize,
        tokens: buffer(tokens)?,
        mask,
        origins,
        digest: head.digest,
        padding: head.padding,
    })
}

/// The numbers of a header.
struct Head {
    step: u64,
    position: u64,
    rows: u64,
    length: u64,
    item_bytes: u64,
    padding: u64,
    digest: u128,
    /// Bytes of tokens, mask and origins.
    section_bytes: [u64; 3],
    body: Option<u64>,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self, FeedError> {
        let Some(head) = bytes.get(..HEADER_BYTES) else {
            return Err(wrong(format!("it has {} bytes, fewer than its header", bytes.len())));
        };
        if head[..8] != MAGIC {
            return Err(wrong("it does not begin as a batch does".into()));
        }
        let version = word(head, 8) as u32;
        if version != VERSION {
            return Err(wrong(format!("it is written in layout {version}, but layout {VERSION} is known")));
        }
        if word(head, HEADER_BYTES - 8) != xxh3_64(&head[..HEADER_BYTES - 8]) {
            return Err(wrong("its header is damaged".into()));
        }
        let hashed = (word(head, 8) >> 32) as u32 & BODY_HASHED != 0;
        let digest = u128::from(word(head, 64)) | u128::from(word(head, 72)) << 64;
        Ok(Self {
            step: word(head, 16),
            position: word(head, 24),
            rows: word(head, 32),
            length: word(head, 40),
            item_bytes: word(head, 48),
            padding: word(head, 56),
            digest,
            section_bytes: [80, 88, 96].map(|at| word(head, at)),
            body: hashed.then(|| word(head, 104)),
        })
    }

    /// Tokens in all rows; boundaries are 32 bits wide, so there are never more.
    fn token_count(&self) -> Result<u64, FeedError> {
        let count = self.rows.checked_mul(self.length).filter(|&count| count <= i32::MAX as u64);
        let shape = || wrong(format!("{} rows of {} tokens are too many", self.rows, self.length));
        count.filter(|_| self.rows.max(self.length) <= i32::MAX as u64).ok_or_else(shape)
    }

    /// Where tokens, mask and origins lie in so many bytes, if everything fits together.
    fn sections(&self, bytes: usize) -> Result<[std::ops::Range<usize>; 3], FeedError> {
        let count = self.token_count()?;
        let [tokens, mask, origins] = self.section_bytes;
        let items = (1..=ITEM_BYTES_MAX).contains(&self.item_bytes);
        if !items || tokens != count * self.item_bytes {
            let (rows, length, item) = (self.rows, self.length, self.item_bytes);
            return Err(wrong(format!("{tokens} bytes are not {rows} rows of {length} tokens of {item}")));
        }
        if mask != 0 && mask != count {
            return Err(wrong(format!("a mask of {mask} bytes does not cover {count} tokens")));
        }
        if origins % ORIGIN_BYTES as u64 != 0 || origins > bytes as u64 {
            return Err(wrong(format!("{origins} bytes are no list of origins")));
        }
        if self.padding > count {
            return Err(wrong(format!("{} of {count} tokens cannot be padding", self.padding)));
        }
        let [tokens, mask, origins] = [tokens, mask, origins].map(|bytes| bytes as usize);
        let mask_at = HEADER_BYTES + aligned(tokens);
        let origins_at = mask_at + aligned(mask);
        let expected = origins_at + origins;
        if expected != bytes {
            return Err(wrong(format!("it has {bytes} bytes instead of {expected}")));
        }
        Ok([HEADER_BYTES..HEADER_BYTES + tokens, mask_at..mask_at + mask, origins_at..expected])
    }
}

fn header(batch: &Batch, body: Option<u64>) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    let flags = if body.is_some() { BODY_HASHED } else { 0 };
    let mask = batch.mask().map_or(0, <[u8]>::len);
    let numbers = [
        u64::from(VERSION) | u64::from(flags) << 32,
        batch.step,
        batch.position,
        batch.rows as u64,
        batch.length as u64,
        batch.item_bytes as u64,
        batch.padding,
        batch.digest as u64,
        (batch.digest >> 64) as u64,
        batch.tokens().len() as u64,
        mask as u64,
        (batch.origins.len() * ORIGIN_BYTES) as u64,
        body.unwrap_or(0),
    ];
    for (place, number) in head[8..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let hash = xxh3_64(&head[..HEADER_BYTES - 8]);
    head[HEADER_BYTES - 8..].copy_from_slice(&hash.to_le_bytes());
    head
}

fn origin_bytes(origin: &Origin) -> [u8; ORIGIN_BYTES] {
    let mut bytes = [0; ORIGIN_BYTES];
    let words = [
        u64::from(origin.row) | u64::from(origin.at) << 32,
        u64::from(origin.length) | u64::from(origin.source) << 32,
        origin.sample,
        u64::from(origin.start),
        origin.epoch,
    ];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Origins in the order of rows, each inside its row and after the one before it.
fn read_origins(bytes: &[u8], head: &Head) -> Result<Vec<Origin>, FeedError> {
    let mut origins: Vec<Origin> = Vec::with_capacity(bytes.len() / ORIGIN_BYTES);
    let mut end = (0, 0);
    for bytes in bytes.chunks_exact(ORIGIN_BYTES) {
        let [low, high] = [0, 8].map(|at| word(bytes, at));
        let origin = Origin {
            row: low as u32,
            at: (low >> 32) as u32,
            length: high as u32,
            source: (high >> 32) as u32,
            sample: word(bytes, 16),
            start: word(bytes, 24) as u32,
            epoch: word(bytes, 32),
        };
        let (row, at) = (u64::from(origin.row), u64::from(origin.at));
        let stop = at + u64::from(origin.length);
        if row >= head.rows || stop > head.length || (row, at) < end {
            return Err(wrong(format!("{origin:?} does not stand in its place")));
        }
        end = (row, stop);
        origins.push(origin);
    }
    Ok(origins)
}

fn body_hash(sections: [&[u8]; 3]) -> u64 {
    let mut hasher = Xxh3::new();
    sections.iter().for_each(|section| hasher.update(section));
    hasher.digest()
}

/// Copies a section to the beginning of the memory and zeros what is left of its last 64 bytes; what comes after.
fn put<'a>(into: &'a mut [u8], section: &[u8]) -> &'a mut [u8] {
    let (place, rest) = into.split_at_mut(aligned(section.len()));
    let (bytes, gap) = place.split_at_mut(section.len());
    bytes.copy_from_slice(section);
    gap.fill(0);
    rest
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// The zeros after a section of so many bytes.
fn gap(bytes: usize) -> &'static [u8] {
    static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];
    &ZEROS[..aligned(bytes) - bytes]
}

fn wrong(reason: String) -> FeedError {
    FeedError::Wire { reason }
}

#[cfg(test)]
mod tests;
