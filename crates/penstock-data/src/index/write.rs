//! Writing an index as a stream: rows, sums and frames are pushed in order and leave in batches.
//!
//! Memory is bounded: a batch holds at most 65,536 rows and about a million sums and frames, whatever the shard's size.
//! Rows are written as they come; sums and frames wait in a spool and are written behind them, so that the bytes of an
//! index do not depend on how the shard's bytes arrived.
//! The file appears under its final name only when it is whole and on disk.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, LargeListArray, LargeStringArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema};
use penstock_io::{Digest, DigestStream};

use super::spool::Spool;
use super::{BATCH_ROWS, COLUMNS, DOCUMENT_KEY, INDEX_VERSION, IndexDocument};
use crate::DataError;

/// An index that is whole and under its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenIndex {
    /// Identity of the index file.
    pub digest: Digest,
    /// Size of the index file.
    pub bytes: u64,
}

/// Takes rows, sums and frames in order and writes an index. Dropped before `finish`, it leaves no file.
pub struct IndexWriter {
    /// The final name.
    path: PathBuf,
    /// Where bytes go until then; removed on drop unless `finish` has renamed it.
    partial: PathBuf,
    /// The Arrow writer; taken by `finish`.
    out: Option<FileWriter<Summing<BufWriter<File>>>>,
    /// Schema shared by all batches.
    schema: Arc<Schema>,
    /// Rows of the next batch.
    pending: Pending,
    /// Block sums so far.
    block: Spool,
    /// First compressed byte of each frame so far.
    frame: Spool,
    /// First decompressed byte of each frame so far.
    frame_start: Spool,
    /// Rows pushed so far.
    rows: u64,
    /// Whether rows have names. Fixed by the first row.
    named: bool,
}

/// The rows of the batch under way.
#[derive(Default)]
struct Pending {
    offset: Vec<u64>,
    length: Vec<u32>,
    name_ends: Vec<i64>,
    name_bytes: Vec<u8>,
}

/// What a batch holds besides rows.
#[derive(Default)]
struct Extras {
    block: Vec<u64>,
    frame: Vec<u64>,
    frame_start: Vec<u64>,
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.block.is_empty() && self.frame.is_empty()
    }
}

impl IndexWriter {
    /// Begins an index that will appear at `path`.
    pub fn create(path: &Path) -> Result<Self, DataError> {
        // Distinct per writer, so that two scans for one name never write into the same file.
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}-{serial}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        let schema = Arc::new(schema());
        let file = File::create(&partial).map_err(|error| failed(path, &error))?;
        let sink = Summing { sink: BufWriter::with_capacity(1 << 18, file), hash: DigestStream::default() };
        let spool = |column: &str| Spool::new(partial.with_extension(column));
        let mut writer = Self {
            path: path.to_owned(),
            block: spool("block"),
            frame: spool("frame"),
            frame_start: spool("frame_start"),
            partial,
            out: None,
            schema,
            pending: Pending::default(),
            rows: 0,
            named: false,
        };
        writer.out = Some(FileWriter::try_new(sink, &writer.schema).map_err(|error| failed(path, &error))?);
        Ok(writer)
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends a row without a name.
    pub fn row(&mut self, offset: u64, length: u32) -> Result<(), DataError> {
        debug_assert!(!self.named, "rows have names either all or none");
        self.push_row(offset, length)
    }

    /// Appends a row with its key.
    pub fn named_row(&mut self, offset: u64, length: u32, name: &str) -> Result<(), DataError> {
        debug_assert!(self.named || self.rows == 0, "rows have names either all or none");
        self.named = true;
        self.pending.name_bytes.extend_from_slice(name.as_bytes());
        self.pending.name_ends.push(self.pending.name_bytes.len() as i64);
        self.push_row(offset, length)
    }

    fn push_row(&mut self, offset: u64, length: u32) -> Result<(), DataError> {
        self.pending.offset.push(offset);
        self.pending.length.push(length);
        self.rows += 1;
        if self.rows % BATCH_ROWS == 0 { self.flush(Extras::default()) } else { Ok(()) }
    }

    /// Appends block sums.
    pub fn blocks(&mut self, sums: &[u64]) -> Result<(), DataError> {
        self.block.extend(sums).map_err(|error| failed(&self.path, &error))
    }

    /// Appends a frame: its first compressed byte and its first decompressed byte.
    pub fn frame(&mut self, offset: u64, start: u64) -> Result<(), DataError> {
        let both = self.frame.extend(&[offset]).and_then(|()| self.frame_start.extend(&[start]));
        both.map_err(|error| failed(&self.path, &error))
    }

    /// Writes the last batch and the document, puts the file on disk, and gives it its name.
    pub fn finish(mut self, document: &IndexDocument) -> Result<WrittenIndex, DataError> {
        self.flush_rest()?;
        let text = serde_json::to_string(document).map_err(|error| failed(&self.path, &error))?;
        let path = self.path.clone();
        let failed = |error: &dyn std::fmt::Display| failed(&path, error);
        let Some(mut out) = self.out.take() else { return Err(failed(&"it is already closed")) };
        out.write_metadata(DOCUMENT_KEY, text);
        out.finish().map_err(|error| failed(&error))?;
        let summing = out.into_inner().map_err(|error| failed(&error))?;
        let (digest, bytes) = summing.hash.finish();
        let file = summing.sink.into_inner().map_err(|error| failed(error.error()))?;
        file.sync_all().map_err(|error| failed(&error))?;
        fs::rename(&self.partial, &path).map_err(|error| failed(&error))?;
        sync_parent(&path).map_err(|error| failed(&error))?;
        Ok(WrittenIndex { digest, bytes })
    }

    /// Writes the rows that are left, with the first chunk of sums and frames; then the other chunks.
    fn flush_rest(&mut self) -> Result<(), DataError> {
        let path = self.path.clone();
        let failed = |error: io::Error| failed(&path, &error);
        let chunks = |spool: &mut Spool| std::mem::replace(spool, Spool::new(PathBuf::new())).into_chunks();
        let mut block = chunks(&mut self.block).map_err(failed)?;
        let mut frame = chunks(&mut self.frame).map_err(failed)?;
        let mut frame_start = chunks(&mut self.frame_start).map_err(failed)?;
        // Each turn writes a chunk of what is left, or ends.
        loop {
            let extras = Extras {
                block: block.next().map_err(failed)?,
                frame: frame.next().map_err(failed)?,
                frame_start: frame_start.next().map_err(failed)?,
            };
            if extras.is_empty() && self.pending.offset.is_empty() {
                return Ok(());
            }
            self.flush(extras)?;
        }
    }

    fn flush(&mut self, extras: Extras) -> Result<(), DataError> {
        let columns = columns(std::mem::take(&mut self.pending), extras);
        let batch =
            RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| failed(&self.path, &error))?;
        let Some(out) = self.out.as_mut() else { return Err(failed(&self.path, &"it is already closed")) };
        out.write(&batch).map_err(|error| failed(&self.path, &error))
    }
}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        // After `finish` the name is gone and this fails, which is as it should be.
        let _ = fs::remove_file(&self.partial);
    }
}

/// The columns of a batch.
fn columns(rows: Pending, extras: Extras) -> Vec<ArrayRef> {
    let long = |values: Vec<u64>| one_list(DataType::UInt64, Arc::new(UInt64Array::from(values)));
    vec![
        long(rows.offset),
        one_list(DataType::UInt32, Arc::new(UInt32Array::from(rows.length))),
        one_list(DataType::LargeUtf8, Arc::new(names(&rows.name_ends, rows.name_bytes))),
        long(extras.block),
        long(extras.frame),
        long(extras.frame_start),
    ]
}

fn names(ends: &[i64], bytes: Vec<u8>) -> LargeStringArray {
    let offsets: Vec<i64> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    // Names arrive as `&str` and are cut where they were joined, so this check of UTF-8 cannot fail.
    LargeStringArray::new(offsets, Buffer::from_vec(bytes), None)
}

fn one_list(kind: DataType, values: ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Arc::new(LargeListArray::new(item(kind), offsets, values, None))
}

fn item(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", kind, false))
}

fn schema() -> Schema {
    let kind = |column: &str| match column {
        "length" => DataType::UInt32,
        "name" => DataType::LargeUtf8,
        _ => DataType::UInt64,
    };
    let fields: Vec<Field> =
        COLUMNS.iter().map(|name| Field::new(*name, DataType::LargeList(item(kind(name))), false)).collect();
    Schema::new_with_metadata(fields, HashMap::from([(DOCUMENT_KEY.to_owned(), INDEX_VERSION.to_string())]))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> DataError {
    DataError::IndexWrite { path: path.display().to_string(), reason: error.to_string() }
}

/// Makes a rename in the directory of `path` survive a power cut.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Sums what passes through on its way to `sink`.
struct Summing<W> {
    sink: W,
    hash: DigestStream,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
