//! Scanning across the border: one call per shard, with progress told to a Python function.

use crate::error;
use crate::source::{Raised, Source};
use crate::structure::structure;
use penstock_data::DataError;
use penstock_data::scan::{
    self, Field, Format, Header, Kind, MdsCheck, MdsColumn, MdsSamples, Mixed, OnBad, Opaque, Packing,
    Progress, RowPlaces, ScanOptions, ScanRequest, ScanSummary,
};
use penstock_io::{Digest, DigestStream, block_sum};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The blake3 digest of some bytes.
#[pyfunction]
pub(crate) fn digest(py: Python<'_>, data: &[u8]) -> String {
    py.detach(|| Digest::of(data).to_string())
}

/// The blake3 digest of a file.
#[pyfunction]
pub(crate) fn digest_file(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let (digest, _) = py.detach(|| DigestStream::read(std::fs::File::open(&path)?))?;
    Ok(digest.to_string())
}

/// The xxh3_64 hash of some bytes.
#[pyfunction]
pub(crate) fn quick_hash(data: &[u8]) -> u64 {
    block_sum(data)
}

/// The beginning of what is inside a zstd file, as far as the given beginning of the file reaches.
#[pyfunction]
pub(crate) fn zstd_head<'py>(py: Python<'py>, head: &[u8], bytes_max: usize) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &penstock_data::zstd_head(head, bytes_max))
}

structure! {
    /// The caller's choices, as Python passes them.
    pub(crate) struct ScanChoices {
        row_bytes_max: u32,
        skip_bad: u64,
        mixed: bool,
        /// One byte.
        #[pyo3(default)]
        delimiter: Option<u8>,
        /// What `NaN` counts as: `float` or `null`.
        #[pyo3(default)]
        nan: Option<String>,
    }
}

impl From<&ScanChoices> for ScanOptions {
    fn from(choices: &ScanChoices) -> Self {
        ScanOptions {
            row_bytes_max: choices.row_bytes_max,
            on_bad: if choices.skip_bad == 0 { OnBad::Fail } else { OnBad::Skip { limit: choices.skip_bad } },
            mixed: if choices.mixed { Mixed::Allow } else { Mixed::Fail },
            header: Header::FirstRow,
            delimiter: choices.delimiter,
            nan: choices.nan.as_deref().map(|kind| if kind == "null" { Kind::Null } else { Kind::Float }),
            allow_empty: false,
        }
    }
}

/// Scans a shard of one of the formats whose rows Rust finds, and writes its index.
#[pyfunction]
#[pyo3(signature = (format, source, index, *, shard, choices, progress))]
pub(crate) fn scan_rows<'py>(
    py: Python<'py>,
    format: &str,
    source: Source,
    index: PathBuf,
    shard: &str,
    choices: ScanChoices,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let format: Format =
        format.parse().map_err(|unknown: scan::UnknownFormat| PyValueError::new_err(unknown.to_string()))?;
    run(py, source, &index, shard, &choices, progress, |input, request| scan::scan(format, input, request))
}

/// Sums a shard whose rows Python has found, and writes its index.
#[pyfunction]
#[pyo3(signature = (format, source, index, *, shard, choices, progress, known))]
#[expect(clippy::too_many_arguments, reason = "one call per shard; Python passes them by name")]
pub(crate) fn scan_known<'py>(
    py: Python<'py>,
    format: &str,
    source: Source,
    index: PathBuf,
    shard: &str,
    choices: ScanChoices,
    progress: Py<PyAny>,
    known: RowFacts,
) -> PyResult<Bound<'py, PyDict>> {
    let details: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&known.details).map_err(|reason| PyValueError::new_err(reason.to_string()))?;
    let offsets = known.offsets.map(|buffer| buffer.to_vec(py)).transpose()?;
    let lengths = known.lengths.map(|buffer| buffer.to_vec(py)).transpose()?;
    let rows = match (&offsets, &lengths) {
        (Some(offsets), Some(lengths)) => {
            RowPlaces::Ranges { offsets, lengths, names: known.names.as_deref() }
        }
        _ => RowPlaces::Counted(known.rows),
    };
    let opaque = Opaque { format, rows, schema: Vec::new(), details };
    let columns: Vec<MdsColumn> = known
        .mds_columns
        .iter()
        .flatten()
        .map(|(encoding, bytes)| MdsColumn::new(encoding, *bytes))
        .collect();
    let samples = MdsSamples {
        offsets: offsets.as_deref().unwrap_or_default(),
        lengths: lengths.as_deref().unwrap_or_default(),
        columns: &columns,
        row_bytes_max: choices.row_bytes_max,
    };
    let mut doubtful = None;
    let scanned = run(py, source, &index, shard, &choices, progress, |input, request| {
        if known.mds_columns.is_none() {
            return scan::scan_opaque(input, opaque, request);
        }
        let mut check = MdsCheck::new(input, samples);
        let summary = scan::scan_opaque(&mut check, opaque, request)?;
        doubtful = Some(check.finish());
        Ok(summary)
    })?;
    scanned.set_item("doubtful", doubtful.map(|rows| as_bytes(py, &rows)).transpose()?)?;
    Ok(scanned)
}

/// Numbers as Python takes them: u64, as bytes.
fn as_bytes<'py>(py: Python<'py>, numbers: &[u64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, numbers.len() * 8, |into| {
        for (place, number) in into.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        Ok(())
    })
}

structure! {
    /// What Python knows about a shard's rows.
    pub(crate) struct RowFacts {
        rows: u64,
        offsets: Option<PyBuffer<u64>>,
        lengths: Option<PyBuffer<u32>>,
        names: Option<Vec<String>>,
        /// JSON object.
        details: String,
        /// Encodings of the columns of MDS samples, with their sizes where fixed; then samples are looked at in passing.
        #[pyo3(default)]
        mds_columns: Option<Vec<(String, Option<u32>)>>,
    }
}

/// Copies lines into frames that can be read at random. Returns the bytes written.
#[pyfunction]
#[pyo3(signature = (source, output, *, shard, packing, progress))]
pub(crate) fn reframe(
    py: Python<'_>,
    source: Source,
    output: PathBuf,
    shard: &str,
    packing: &str,
    progress: Py<PyAny>,
) -> PyResult<u64> {
    let packing = match packing {
        "plain" => Packing::Plain,
        "gzip" => Packing::Gzip,
        "zstd" => Packing::Zstd,
        other => return Err(PyValueError::new_err(format!("unknown packing {other:?}"))),
    };
    let raised = Raised::default();
    let mut tell = teller(progress, &raised);
    let work = || -> Result<u64, DataError> {
        let input = source.stream(&raised)?;
        Ok(scan::reframe(input, packing, shard, &output, Some(&mut tell))?.bytes)
    };
    py.detach(work).map_err(|problem| raised.take().unwrap_or_else(|| error::from_scan(py, problem)))
}

fn run<'py>(
    py: Python<'py>,
    source: Source,
    index: &PathBuf,
    shard: &str,
    choices: &ScanChoices,
    progress: Py<PyAny>,
    work: impl FnOnce(Box<dyn Read + Send>, ScanRequest<'_>) -> Result<ScanSummary, DataError> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let raised = Raised::default();
    let mut tell = teller(progress, &raised);
    let options = ScanOptions::from(choices);
    let done = py.detach(|| {
        let input = source.stream(&raised)?;
        work(input, ScanRequest { shard, index_path: index, options: &options, progress: Some(&mut tell) })
    });
    match done {
        Ok(summary) => summarise(py, summary),
        Err(problem) => Err(raised.take().unwrap_or_else(|| error::from_scan(py, problem))),
    }
}

/// A progress function that tells Python; an exception there (also Ctrl-C) ends the work and is raised again.
fn teller(progress: Py<PyAny>, raised: &Raised) -> impl FnMut(Progress) -> ControlFlow<()> + Send + use<> {
    let raised = raised.clone();
    move |now: Progress| {
        let answer = Python::attach(|py| progress.bind(py).call1((now.bytes, now.rows)).map(drop));
        match answer {
            Ok(()) => ControlFlow::Continue(()),
            Err(problem) => {
                raised.keep(problem);
                ControlFlow::Break(())
            }
        }
    }
}

fn summarise(py: Python<'_>, summary: ScanSummary) -> PyResult<Bound<'_, PyDict>> {
    let document = PyDict::new(py);
    document.set_item("rows", summary.rows)?;
    document.set_item("bytes", summary.bytes)?;
    document.set_item("digest", summary.digest.to_string())?;
    let schema: Vec<(String, &str, bool)> = summary
        .schema
        .into_iter()
        .map(|Field { name, kind, optional }| (name, Kind::name(kind), optional))
        .collect();
    document.set_item("schema", schema)?;
    let bad: Vec<(u64, u64, String)> =
        summary.bad.into_iter().map(|bad| (bad.line, bad.offset, bad.reason)).collect();
    document.set_item("bad", bad)?;
    let details = serde_json::to_string(&summary.details)
        .map_err(|reason| PyValueError::new_err(reason.to_string()))?;
    document.set_item("details", details)?;
    Ok(document)
}
