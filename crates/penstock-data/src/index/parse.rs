//! Finding the columns of an index inside its bytes, without trusting any of them.
//!
//! The flatbuffers of the footer and of each batch are verified by their own verifier; every position they name is
//! checked against the bytes here. Columns are then read in place, so opening costs one step per batch and no copy.

use std::ops::Range;

use arrow_ipc::{MessageHeader, Type, root_as_footer, root_as_message};

use super::{BATCH_ROWS, COLUMNS, DOCUMENT_KEY, INDEX_VERSION, IndexDocument};
use crate::DataError;

const MAGIC: &[u8] = b"ARROW1";
/// Footer length (4 bytes) and magic (6 bytes) at the very end.
const TAIL_BYTES: usize = 10;
/// Before the flatbuffer of a message: a continuation mark and a length, 4 bytes each.
const PREFIX_BYTES: usize = 8;
/// Nodes in a batch: a list and its values for each of six columns.
const NODES: usize = 2 * COLUMNS.len();
/// Buffers in a batch: validity and offsets of a list, validity and values of its items, and offsets for names.
const BUFFERS: usize = 4 * COLUMNS.len() + 1;

/// A column of one batch: `count` fixed-width values that begin at byte `at` of the index.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Values {
    pub(super) at: usize,
    pub(super) count: u64,
}

/// Where the columns of one batch are.
#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    pub(super) offset: Values,
    pub(super) length: Values,
    /// Offsets (i64) that cut `name_bytes`; one more than there are names, or none.
    pub(super) name_cuts: Values,
    pub(super) name_bytes: Range<usize>,
    pub(super) block: Values,
    pub(super) frame: Values,
    pub(super) frame_start: Values,
}

/// Everything that opening finds.
pub(super) struct Parsed {
    pub(super) document: IndexDocument,
    pub(super) batches: Vec<Batch>,
}

fn damaged(reason: impl Into<String>) -> DataError {
    DataError::index_damaged(reason)
}

/// Reads the footer and the place of every column. Never panics, whatever the bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, DataError> {
    let body_end =
        bytes.len().checked_sub(TAIL_BYTES).ok_or_else(|| damaged("it is shorter than its own frame"))?;
    if !bytes.starts_with(MAGIC) || &bytes[body_end + 4..] != MAGIC {
        return Err(damaged("it is not a complete Arrow IPC file"));
    }
    let footer_bytes = le_u32(bytes, body_end).unwrap_or(0) as usize;
    let footer_at =
        body_end.checked_sub(footer_bytes).ok_or_else(|| damaged("its footer is longer than the file"))?;
    let footer = root_as_footer(&bytes[footer_at..body_end])
        .map_err(|error| damaged(format!("its footer is not valid: {error}")))?;
    let schema = footer.schema().ok_or_else(|| damaged("it has no schema"))?;
    check_version(pair(schema.custom_metadata()))?;
    check_columns(&schema)?;
    let text = pair(footer.custom_metadata()).ok_or_else(|| damaged("its footer has no document"))?;
    let document: IndexDocument =
        serde_json::from_str(text).map_err(|error| damaged(format!("its document is not valid: {error}")))?;
    check_version(Some(&document.version.to_string()))?;
    let mut batches = Vec::new();
    for block in footer.recordBatches().iter().flatten() {
        let place = Place::new(block.offset(), block.metaDataLength(), block.bodyLength(), footer_at)?;
        batches.push(batch(bytes, &place)?);
    }
    Ok(Parsed { document, batches })
}

/// A flatbuffer's key-value list.
type Pairs<'a> = flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<arrow_ipc::KeyValue<'a>>>;

/// The value of our one key.
fn pair(pairs: Option<Pairs<'_>>) -> Option<&str> {
    pairs?.iter().find(|pair| pair.key() == Some(DOCUMENT_KEY)).and_then(|pair| pair.value())
}

fn check_version(text: Option<&str>) -> Result<(), DataError> {
    let found =
        text.and_then(|text| text.parse().ok()).ok_or_else(|| damaged("it does not say its version"))?;
    match found {
        1..=INDEX_VERSION => Ok(()),
        _ => Err(DataError::IndexVersion { found, known: INDEX_VERSION }),
    }
}

fn check_columns(schema: &arrow_ipc::Schema<'_>) -> Result<(), DataError> {
    let fields = schema.fields().ok_or_else(|| damaged("its schema has no fields"))?;
    if fields.len() != COLUMNS.len() {
        return Err(damaged(format!("it has {} columns, expected {}", fields.len(), COLUMNS.len())));
    }
    for (field, name) in fields.iter().zip(COLUMNS) {
        let item = field.children().filter(|items| items.len() == 1).map(|items| items.get(0));
        let width = item.and_then(|item| item.type_as_int()).map(|int| (int.bitWidth(), int.is_signed()));
        let right = match name {
            "name" => item.is_some_and(|item| item.type_type() == Type::LargeUtf8),
            "length" => width == Some((32, false)),
            _ => width == Some((64, false)),
        };
        if field.name() != Some(name) || field.type_type() != Type::LargeList || !right {
            return Err(damaged(format!("column `{name}` is missing or has another type")));
        }
    }
    Ok(())
}

/// Where a batch lies, checked to be inside the file.
struct Place {
    message: Range<usize>,
    body: Range<usize>,
}

impl Place {
    fn new(offset: i64, message_bytes: i32, body_bytes: i64, limit: usize) -> Result<Self, DataError> {
        let place = || {
            let start = usize::try_from(offset).ok()?;
            let message_bytes = usize::try_from(message_bytes).ok().filter(|bytes| *bytes >= PREFIX_BYTES)?;
            let body_at = start.checked_add(message_bytes)?;
            let body_end = body_at.checked_add(usize::try_from(body_bytes).ok()?)?;
            (body_end <= limit).then_some(Self { message: start..body_at, body: body_at..body_end })
        };
        place().ok_or_else(|| damaged(format!("a batch at byte {offset} lies outside the file")))
    }
}

fn batch(bytes: &[u8], place: &Place) -> Result<Batch, DataError> {
    let at = place.message.start;
    let wrong = |what: &str| damaged(format!("batch at byte {at}: {what}"));
    let prefix = &bytes[at..at + PREFIX_BYTES];
    let length = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
    if prefix[..4] != [0xff; 4] || length > place.message.len() - PREFIX_BYTES {
        return Err(wrong("its message has no valid length"));
    }
    let message = root_as_message(&bytes[at + PREFIX_BYTES..at + PREFIX_BYTES + length])
        .map_err(|error| wrong(&format!("its message is not valid: {error}")))?;
    if message.header_type() != MessageHeader::RecordBatch {
        return Err(wrong("it is not a record batch"));
    }
    let header = message.header_as_record_batch().ok_or_else(|| wrong("it has no header"))?;
    let (nodes, buffers) = header.nodes().zip(header.buffers()).ok_or_else(|| wrong("it has no columns"))?;
    if header.length() != 1
        || header.compression().is_some()
        || nodes.len() != NODES
        || buffers.len() != BUFFERS
    {
        return Err(wrong("its shape is not that of an index"));
    }
    let counts: Vec<u64> = (0..COLUMNS.len())
        .map(|column| u64::try_from(nodes.get(2 * column + 1).length()).unwrap_or(u64::MAX))
        .collect();
    let columns = Columns { bytes, body: place.body.clone(), buffers, counts };
    columns.batch().ok_or_else(|| wrong("a column lies outside it or disagrees with its length"))
}

/// The buffers of one batch.
struct Columns<'a> {
    bytes: &'a [u8],
    body: Range<usize>,
    buffers: flatbuffers::Vector<'a, arrow_ipc::Buffer>,
    /// Values of each column.
    counts: Vec<u64>,
}

impl Columns<'_> {
    fn batch(&self) -> Option<Batch> {
        let batch = Batch {
            offset: self.fixed(0, 3, 8)?,
            length: self.fixed(1, 7, 4)?,
            name_cuts: self.name_cuts()?,
            name_bytes: self.buffer(12)?,
            block: self.fixed(3, 16, 8)?,
            frame: self.fixed(4, 20, 8)?,
            frame_start: self.fixed(5, 24, 8)?,
        };
        let lists = [(0, 1), (1, 5), (2, 9), (3, 14), (4, 18), (5, 22)];
        let whole =
            lists.into_iter().all(|(column, offsets)| self.list_is_whole(column, offsets) == Some(true));
        let names = batch.name_cuts.count.saturating_sub(1);
        let rows = batch.offset.count;
        let agree = rows == batch.length.count
            && (names == 0 || names == rows)
            && rows <= BATCH_ROWS
            && batch.frame.count == batch.frame_start.count;
        (whole && agree).then_some(batch)
    }

    /// Bytes of buffer `index`, inside the body.
    fn buffer(&self, index: usize) -> Option<Range<usize>> {
        let buffer = self.buffers.get(index);
        let start = self.body.start.checked_add(usize::try_from(buffer.offset()).ok()?)?;
        let end = start.checked_add(usize::try_from(buffer.length()).ok()?)?;
        (end <= self.body.end).then_some(start..end)
    }

    fn fixed(&self, column: usize, buffer: usize, width: u64) -> Option<Values> {
        let (range, count) = (self.buffer(buffer)?, self.counts[column]);
        (count.checked_mul(width)? <= range.len() as u64).then_some(Values { at: range.start, count })
    }

    /// Cuts are checked to be in order where a name is read; here only that they fit.
    fn name_cuts(&self) -> Option<Values> {
        let (range, names) = (self.buffer(11)?, self.counts[2]);
        if names == 0 {
            return Some(Values::default());
        }
        let count = names.checked_add(1)?;
        (count.checked_mul(8)? <= range.len() as u64).then_some(Values { at: range.start, count })
    }

    /// Whether the one list of a column covers all its values: offsets `0, count`.
    fn list_is_whole(&self, column: usize, buffer: usize) -> Option<bool> {
        let range = self.buffer(buffer)?;
        let whole = range.len() >= 16
            && le_u64(self.bytes, range.start)? == 0
            && le_u64(self.bytes, range.start + 8)? == self.counts[column];
        Some(whole)
    }
}

/// Little-endian u64 at byte `at`, where there is one.
pub(super) fn le_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let piece = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(piece.try_into().ok()?))
}

/// Little-endian u32 at byte `at`, where there is one.
pub(super) fn le_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let piece = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(piece.try_into().ok()?))
}
