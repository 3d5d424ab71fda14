//! Files whose rows another reader finds (parquet, arrow, npy, MDS, bin/idx, ArrayRecord, …): only sums and identity here.
//!
//! The caller may pass ranges it has found, and they are checked against the file and stored like any other; or only
//! a count, and the index then says that rows are found by the format's own reader.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;

use super::raw::{RawStream, pass_over};
use super::record::{Findings, Recorder};
use super::{Field, ScanRequest, ScanSummary};
use crate::DataError;
use crate::index::Layout;

/// What the caller knows about the rows of a file.
#[derive(Debug, Clone, Copy)]
pub enum RowPlaces<'a> {
    /// Only how many there are.
    Counted(u64),
    /// Where each one is. The slices have equal lengths.
    Ranges {
        /// First byte of each row.
        offsets: &'a [u64],
        /// Bytes of each row.
        lengths: &'a [u32],
        /// Key of each row, where rows have keys.
        names: Option<&'a [String]>,
    },
}

/// What the caller knows about a file that is not walked here.
#[derive(Debug, Clone)]
pub struct Opaque<'a> {
    /// Its format's name, for the index.
    pub format: &'a str,
    /// Its rows.
    pub rows: RowPlaces<'a>,
    /// Its fields, for the summary.
    pub schema: Vec<Field>,
    /// What its format adds, for the index and the summary.
    pub details: BTreeMap<String, serde_json::Value>,
}

/// Sums a file and writes an index with the rows the caller has found.
pub fn scan_opaque(
    input: impl Read,
    known: Opaque<'_>,
    request: ScanRequest<'_>,
) -> Result<ScanSummary, DataError> {
    let recorder = RefCell::new(Recorder::new(request)?);
    let mut raw = RawStream::new(input, &recorder);
    pass_over(&mut raw, u64::MAX, |_| ()).map_err(|error| recorder.borrow().read_failed(error))?;
    let mut recorder = recorder.into_inner();
    let (layout, rows) = match known.rows {
        RowPlaces::Counted(rows) => (Layout::Opaque, Some(rows)),
        RowPlaces::Ranges { offsets, lengths, names } => {
            record_ranges(&mut recorder, known.format, (offsets, lengths), names)?;
            (Layout::Ranges, None)
        }
    };
    let (schema, details) = (known.schema, known.details);
    recorder.finish(Findings { format: known.format.to_owned(), layout, rows, schema, details })
}

fn record_ranges(
    recorder: &mut Recorder<'_>,
    format: &str,
    (offsets, lengths): (&[u64], &[u32]),
    names: Option<&[String]>,
) -> Result<(), DataError> {
    if offsets.len() != lengths.len() || names.is_some_and(|names| names.len() != offsets.len()) {
        let reason = format!(
            "{} offsets came with {} lengths or another number of names",
            offsets.len(),
            lengths.len()
        );
        return Err(recorder.not_this_format(format, 0, reason));
    }
    let bytes = recorder.bytes();
    for (row, (&offset, &length)) in offsets.iter().zip(lengths).enumerate() {
        if offset.checked_add(u64::from(length)).is_none_or(|end| end > bytes) {
            let reason = format!("row {row} has {length} bytes there, but the file has {bytes} in all");
            return Err(recorder.not_this_format(format, offset, reason));
        }
        if length > recorder.options().row_bytes_max {
            recorder.too_large(row as u64 + 1, offset)?;
            continue;
        }
        match names {
            None => recorder.row(offset, length)?,
            Some(names) => recorder.named_row(offset, length, &names[row])?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Index;
    use crate::scan::ScanOptions;

    fn scan(bytes: &[u8], rows: RowPlaces<'_>) -> Result<(ScanSummary, Index), DataError> {
        let dir = tempfile::tempdir().unwrap();
        let index_path = dir.path().join("index");
        let options = ScanOptions::default();
        let request =
            ScanRequest { shard: "shard", index_path: &index_path, options: &options, progress: None };
        let known = Opaque { format: "npy", rows, schema: vec![], details: BTreeMap::new() };
        let summary = scan_opaque(bytes, known, request)?;
        let index = Index::open_path(&index_path, Some(summary.index_digest))?;
        Ok((summary, index))
    }

    #[test]
    fn ranges_from_the_caller_are_stored_with_names() {
        let names = ["a".to_owned(), "b".to_owned()];
        let rows = RowPlaces::Ranges { offsets: &[2, 6], lengths: &[4, 0], names: Some(&names) };
        let (summary, index) = scan(b"0123456789", rows).unwrap();
        assert_eq!((summary.rows, summary.bytes), (2, 10));
        assert_eq!(index.row(0), Some(crate::Span { offset: 2, length: 4 }));
        assert_eq!((index.name(0), index.name(1), index.name(2)), (Some("a"), Some("b"), None));
    }

    #[test]
    fn a_count_makes_an_index_without_ranges() {
        let (_, index) = scan(&[1; 200_000], RowPlaces::Counted(1_000)).unwrap();
        assert_eq!((index.rows(), index.row(0), index.document().layout), (1_000, None, Layout::Opaque));
    }

    #[test]
    fn ranges_outside_the_file_are_refused() {
        for (offset, length) in [(9, 2), (u64::MAX, 1), (11, 0)] {
            let rows = RowPlaces::Ranges { offsets: &[offset], lengths: &[length], names: None };
            assert!(matches!(scan(b"0123456789", rows), Err(DataError::NotThisFormat { .. })));
        }
        let uneven = RowPlaces::Ranges { offsets: &[1], lengths: &[], names: None };
        assert!(matches!(scan(b"0123456789", uneven), Err(DataError::NotThisFormat { .. })));
    }
}
