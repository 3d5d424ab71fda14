//! Scanning: one pass over a raw file that learns everything reading will need, in bounded memory.
//!
//! A format's file walks the bytes and says where rows are; `raw` reads and sums them, `record` writes the index and
//! applies the caller's policy for bad rows. The raw file is never changed and never read twice.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;

use penstock_io::Digest;

use crate::DataError;

mod content;
mod delimited;
mod fields;
mod frames;
mod json;
mod lines;
mod literal;
mod mds;
mod npy;
mod opaque;
mod raw;
mod record;
mod reframe;
mod split;
mod tar;
mod tfrecord;

pub use delimited::scan_delimited;
pub use fields::{Field, Kind};
pub use frames::scan_frames;
pub use lines::{LineFormat, scan_lines};
pub use mds::{MdsCheck, MdsColumn, MdsSamples};
pub use opaque::{Opaque, RowPlaces, scan_opaque};
pub use reframe::{Packing, ReframeSummary, reframe};
pub use tar::scan_tar;
pub use tfrecord::scan_tfrecord;

/// Largest row accepted unless the caller says otherwise: 64 MiB.
pub const ROW_BYTES_MAX: u32 = 64 << 20;

/// Bytes between two calls of the progress function, at least.
pub const PROGRESS_BYTES: u64 = 4 << 20;

/// What to do with a row that breaks its format's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBad {
    /// Stop at the first one.
    Fail,
    /// Leave it out and record it, up to `limit` times; then stop.
    Skip {
        /// Most rows that may be left out.
        limit: u64,
    },
}

/// What to do when a field has one kind in one row and another in the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixed {
    /// The later row is bad.
    Fail,
    /// The field is of kind [`Kind::Mixed`].
    Allow,
}

/// Where the column names of a delimited file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// From its first record.
    FirstRow,
    /// From the caller; the first record is data.
    Names(Vec<String>),
}

/// The caller's choices for a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// Most bytes a row may have.
    pub row_bytes_max: u32,
    /// What to do with bad rows.
    pub on_bad: OnBad,
    /// What to do with fields of several kinds.
    pub mixed: Mixed,
    /// Where column names come from; delimited files only.
    pub header: Header,
    /// What separates fields, where it is not what the format's name says; delimited files only.
    pub delimiter: Option<u8>,
    /// What `NaN` and infinities count as, which Python writes into JSON; nothing makes such a row bad.
    pub nan: Option<Kind>,
    /// Whether a shard may have no rows.
    pub allow_empty: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            row_bytes_max: ROW_BYTES_MAX,
            on_bad: OnBad::Fail,
            mixed: Mixed::Fail,
            header: Header::FirstRow,
            delimiter: None,
            nan: None,
            allow_empty: false,
        }
    }
}

/// How far a scan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Raw bytes read.
    pub bytes: u64,
    /// Rows found.
    pub rows: u64,
}

/// Called about every 4 MiB; breaking ends the scan with [`DataError::Cancelled`].
pub type ProgressFn<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// One scan: of what, to where, how.
pub struct ScanRequest<'a> {
    /// What errors call the shard.
    pub shard: &'a str,
    /// Where the index will appear once it is whole.
    pub index_path: &'a Path,
    /// The caller's choices.
    pub options: &'a ScanOptions,
    /// Told how far the scan has come.
    pub progress: Option<&'a mut ProgressFn<'a>>,
}

/// A row that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its line counted from 1, or its ordinal counted from 1 where the format has no lines.
    pub line: u64,
    /// Its first byte; in a compressed file, of the decompressed stream.
    pub offset: u64,
    /// Which rule it breaks.
    pub reason: String,
}

/// What a scan has found. The index is on disk when this is returned.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanSummary {
    /// Rows in the index.
    pub rows: u64,
    /// Bytes of the shard.
    pub bytes: u64,
    /// Identity of the shard.
    pub digest: Digest,
    /// Identity of the index file.
    pub index_digest: Digest,
    /// Size of the index file.
    pub index_bytes: u64,
    /// Fields of a row, in the order in which they first appear.
    pub schema: Vec<Field>,
    /// Rows left out, in file order.
    pub bad: Vec<BadRow>,
    /// What the format adds; also in the index's document.
    pub details: BTreeMap<String, serde_json::Value>,
}

/// The raw formats whose rows are found here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line, or one text per line.
    Lines(LineFormat),
    /// The same, compressed with zstd.
    Frames(LineFormat),
    /// Comma-separated values with a header.
    Csv,
    /// Tab-separated values with a header.
    Tsv,
    /// A WebDataset archive.
    Tar,
    /// TensorFlow's record file.
    Tfrecord,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Lines(LineFormat::Jsonl),
        Self::Lines(LineFormat::Text),
        Self::Frames(LineFormat::Jsonl),
        Self::Frames(LineFormat::Text),
        Self::Csv,
        Self::Tsv,
        Self::Tar,
        Self::Tfrecord,
    ];

    /// The name used in indexes and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lines(LineFormat::Jsonl) => "jsonl",
            Self::Lines(LineFormat::Text) => "text",
            Self::Frames(LineFormat::Jsonl) => "jsonl.zst",
            Self::Frames(LineFormat::Text) => "text.zst",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Tar => "tar",
            Self::Tfrecord => "tfrecord",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a format whose rows are found by scanning")]
pub struct UnknownFormat {
    /// What was given.
    pub name: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let known = Self::ALL.into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

/// Scans `input` as `format`.
pub fn scan(format: Format, input: impl Read, request: ScanRequest<'_>) -> Result<ScanSummary, DataError> {
    match format {
        Format::Lines(lines) => scan_lines(input, lines, request),
        Format::Frames(lines) => scan_frames(input, lines, request),
        Format::Csv | Format::Tsv => scan_delimited(input, format, request),
        Format::Tar => scan_tar(input, request),
        Format::Tfrecord => scan_tfrecord(input, request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert_eq!("xlsx".parse::<Format>(), Err(UnknownFormat { name: "xlsx".into() }));
    }
}
