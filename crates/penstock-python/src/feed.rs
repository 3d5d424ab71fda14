//! The feed across the border: a plan comes in as plain values, batches go out as buffers.

use crate::error;
use crate::shard::IndexSource;
use crate::source::{Raised, Source};
use penstock_data::feed::{
    Ahead, Batch, FeedError, LazyShard, MakeBatch, Maker, MixturePlan, Packing, RowLayout, SourceStream,
    StreamKind, Table, TokenSource, build_table as build,
};
use penstock_data::plan::{BatchSchedule, Change, Exhaustion, Key, Mixture, Policy, Shuffle};
use penstock_data::{DataError, Shard};
use penstock_io::Digest;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a wait for a batch goes on before signals are looked for.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
const DEPTH_MAX: usize = 64;

/// Source, index, the index's digest, rows, and (first byte, bytes of a row) where rows follow each other without gaps.
type ShardParts = (Source, IndexSource, String, u64, Option<(u64, u64)>);

/// A recipe with everything measured, as Python passes it.
#[derive(FromPyObject)]
pub(crate) struct FeedPlan {
    #[pyo3(item)]
    sources: Vec<SourcePlan>,
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    length: u32,
    #[pyo3(item)]
    batch: Vec<(u64, u64)>,
    #[pyo3(item)]
    weights: Vec<(u64, Vec<f64>)>,
    #[pyo3(item)]
    shuffle: String,
    #[pyo3(item)]
    exhaustion: String,
    /// Steps that are left out.
    #[pyo3(item)]
    skips: Vec<(u64, u64)>,
}

#[derive(FromPyObject)]
struct SourcePlan {
    #[pyo3(item)]
    digest: String,
    #[pyo3(item)]
    shards: Vec<ShardParts>,
    #[pyo3(item)]
    item_bytes: usize,
    #[pyo3(item)]
    table: Option<Source>,
    #[pyo3(item)]
    policy: String,
    #[pyo3(item)]
    epochs: Option<u64>,
}

fn shuffle_named(name: &str) -> PyResult<Shuffle> {
    match name {
        "full" => Ok(Shuffle::Full),
        "local" => Ok(Shuffle::Local),
        "none" => Ok(Shuffle::None),
        other => Err(PyValueError::new_err(format!("unknown shuffle {other:?}"))),
    }
}

fn policy_named(name: &str) -> PyResult<Policy> {
    match name {
        "concat" => Ok(Policy::Concat),
        "fit" => Ok(Policy::Fit),
        other => Err(PyValueError::new_err(format!("unknown policy {other:?}"))),
    }
}

fn digest_of(text: &str) -> PyResult<Digest> {
    text.parse().map_err(|reason: penstock_io::DigestParseError| PyValueError::new_err(reason.to_string()))
}

fn token_source(
    shards: Vec<ShardParts>,
    item_bytes: usize,
    raised: &Raised,
) -> Result<TokenSource, FeedError> {
    let lazy = shards.into_iter().map(|(source, index, digest, rows, fixed)| {
        let layout =
            fixed.map_or(RowLayout::Ranges, |(offset, row_bytes)| RowLayout::Fixed { offset, row_bytes });
        let raised = raised.clone();
        let open = move || -> Result<Shard, FeedError> {
            let file = source.open_again(&raised).map_err(DataError::from)?;
            Ok(Shard::open(file, Arc::new(index.open_again(&digest)?))?)
        };
        LazyShard::new(rows, layout, Box::new(open))
    });
    TokenSource::new(lazy.collect(), item_bytes)
}

impl FeedPlan {
    fn maker(self, lane: (u64, u64), raised: &Raised) -> PyResult<Result<Maker, FeedError>> {
        let shuffle = shuffle_named(&self.shuffle)?;
        let exhaustion = if self.exhaustion == "drop" { Exhaustion::Drop } else { Exhaustion::Stop };
        let mut parts = Vec::new();
        for source in self.sources {
            let policy = policy_named(&source.policy)?;
            parts.push((digest_of(&source.digest)?, policy, source));
        }
        let (seed, length) = (self.seed, self.length);
        let build = || -> Result<Maker, FeedError> {
            let mut streams = Vec::new();
            let mut limits = Vec::new();
            for (digest, policy, source) in parts {
                let tokens = token_source(source.shards, source.item_bytes, raised)?;
                let kind = match source.table {
                    None => StreamKind::Rows,
                    Some(table) => {
                        let file = table.open(raised).map_err(DataError::from)?;
                        StreamKind::Packed { table: Table::open(file)?, policy }
                    }
                };
                let stream = SourceStream::new(tokens, kind, digest, seed, shuffle, length)?;
                limits.push(source.epochs.map(|epochs| epochs.saturating_mul(stream.per_epoch())));
                streams.push(stream);
            }
            let steps = BatchSchedule::new(&self.batch)?;
            let changes = self
                .weights
                .iter()
                .map(|(step, weights)| {
                    Ok(Change { from: steps.positions(*step)?.start, weights: weights.clone() })
                })
                .collect::<Result<Vec<_>, FeedError>>()?;
            let mixture = Mixture::new(Key::mixture(seed), &changes, &limits, exhaustion)?;
            let pad_last = self.exhaustion == "pad";
            let skips = self.skips.iter().map(|&(first, stop)| first..stop).collect();
            Maker::new(streams, MixturePlan { mixture, steps, pad_last, skips }, lane, length as usize)
        };
        Ok(build())
    }
}

/// Batches of one lane, read ahead by threads.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Feed {
    ahead: Ahead,
    /// Where an exception of a Python source waits.
    raised: Raised,
}

#[pymethods]
impl Feed {
    #[new]
    fn new(
        py: Python<'_>,
        plan: FeedPlan,
        lane: (u64, u64),
        step: u64,
        threads: usize,
        memory_bytes: usize,
    ) -> PyResult<Self> {
        let raised = Raised::default();
        let fail = |problem: FeedError| raised.take().unwrap_or_else(|| error::from_feed(py, problem));
        // The largest batch that is still to come decides how far ahead the memory allows to read.
        let later = plan.batch.iter().map(|&(first, _)| first.max(step)).collect::<Vec<_>>();
        let maker = plan.maker(lane, &raised)?.map_err(fail)?;
        let mut batch_bytes = maker.batch_bytes(step).map_err(fail)?;
        for step in later {
            batch_bytes = batch_bytes.max(maker.batch_bytes(step).map_err(fail)?);
        }
        let depth = (memory_bytes / batch_bytes.max(1)).clamp(1, DEPTH_MAX);
        let ahead = Ahead::start(Arc::new(maker) as Arc<dyn MakeBatch>, step, threads.min(depth), depth)
            .map_err(fail)?;
        Ok(Feed { ahead, raised })
    }

    /// The next batch, or None at the end of the stream.
    fn next(&self, py: Python<'_>) -> PyResult<Option<FeedBatch>> {
        loop {
            let answer = py.detach(|| self.ahead.next(SIGNAL_INTERVAL));
            match answer {
                Ok(Ok(batch)) => return Ok(batch.map(|batch| FeedBatch { batch })),
                Ok(Err(())) => py.check_signals()?,
                Err(problem) => {
                    return Err(self.raised.take().unwrap_or_else(|| error::from_feed(py, problem)));
                }
            }
        }
    }

    /// Batches delivered, batches ready, and the last waits in seconds (f64, as bytes).
    fn waits<'py>(&self, py: Python<'py>) -> (u64, usize, Bound<'py, PyBytes>) {
        let waits = self.ahead.waits();
        let bytes: Vec<u8> = waits.waits_s.iter().flat_map(|wait| wait.to_le_bytes()).collect();
        (waits.batches, waits.ready, PyBytes::new(py, &bytes))
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.ahead.close());
    }
}

/// One batch; a buffer of its tokens, row after row.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct FeedBatch {
    batch: Batch,
}

#[pymethods]
impl FeedBatch {
    #[getter]
    fn step(&self) -> u64 {
        self.batch.step
    }

    #[getter]
    fn position(&self) -> u64 {
        self.batch.position
    }

    #[getter]
    fn rows(&self) -> usize {
        self.batch.rows
    }

    #[getter]
    fn length(&self) -> usize {
        self.batch.length
    }

    #[getter]
    fn item_bytes(&self) -> usize {
        self.batch.item_bytes
    }

    #[getter]
    fn digest(&self) -> u128 {
        self.batch.digest
    }

    #[getter]
    fn padding(&self) -> u64 {
        self.batch.padding
    }

    /// Where documents begin and end in all rows taken as one sequence (i32, as bytes).
    fn boundaries<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.batch.boundaries().iter().flat_map(|end| end.to_le_bytes()).collect();
        PyBytes::new(py, &bytes)
    }

    /// 1 for every token and 0 for padding, row after row (u8).
    fn real_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.batch.rows * self.batch.length, |into| {
            for origin in &self.batch.origins {
                let first = origin.row as usize * self.batch.length + origin.at as usize;
                into[first..first + origin.length as usize].fill(1);
            }
            Ok(())
        })
    }

    /// What a row is made of: place in the row, tokens, source, sample, first token in it, epoch.
    fn origins(&self, row: u32) -> Vec<(u32, u32, u32, u64, u32, u64)> {
        let first = self.batch.origins.partition_point(|origin| origin.row < row);
        let of_row = self.batch.origins[first..].iter().take_while(|origin| origin.row == row);
        of_row.map(|o| (o.at, o.length, o.source, o.sample, o.start, o.epoch)).collect()
    }

    /// How many rows came from each source.
    fn rows_by_source(&self, sources: usize) -> Vec<u64> {
        let mut counts = vec![0; sources];
        let mut last = None;
        for origin in &self.batch.origins {
            if last != Some(origin.row) {
                last = Some(origin.row);
                counts[origin.source as usize] += 1;
            }
        }
        counts
    }

    /// Hands the tokens out without a copy; the batch lives as long as somebody looks at them.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("batches cannot be written to; copy them first"));
        }
        let this = slf.get();
        let tokens = this.batch.tokens();
        // SAFETY: the buffer belongs to `slf`, which is frozen and which the view keeps alive; the pointer stays where it is
        // until the batch is dropped.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                tokens.as_ptr() as *mut c_void,
                tokens.len() as ffi::Py_ssize_t,
                1,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Builds a plan table from measured lengths; its packs per epoch.
#[pyfunction]
#[pyo3(signature = (path, lengths, kept, *, length, policy, shuffle, source))]
#[expect(clippy::too_many_arguments, reason = "one call per table; Python passes them by name")]
pub(crate) fn build_table(
    py: Python<'_>,
    path: PathBuf,
    lengths: PyBuffer<u32>,
    kept: Option<PyBuffer<u8>>,
    length: u32,
    policy: &str,
    shuffle: &str,
    source: &str,
) -> PyResult<u64> {
    let lengths = lengths.to_vec(py)?;
    let kept = kept.map(|kept| kept.to_vec(py)).transpose()?;
    let (policy, shuffle, source) = (policy_named(policy)?, shuffle_named(shuffle)?, digest_of(source)?);
    let packing = Packing { length, policy, shuffle, source: &source };
    let head = py
        .detach(|| build(&path, &lengths, kept.as_deref(), packing))
        .map_err(|problem| error::from_feed(py, problem))?;
    Ok(head.packs.iter().map(|&packs| u64::from(packs)).sum())
}

/// 1 for the rows of a version that are held out (u8, as bytes): a fixed share of them, drawn by a key of the version.
#[pyfunction]
pub(crate) fn held_out<'py>(
    py: Python<'py>,
    version: &str,
    rows: usize,
    share: f64,
) -> PyResult<Bound<'py, PyBytes>> {
    let version = digest_of(version)?;
    let key = Key::of("held out", &[(&version).into()]);
    PyBytes::new_with(py, rows, |into| {
        let mut draws = key.draws();
        // 53 bits make a fraction that every machine rounds the same way.
        into.iter_mut()
            .for_each(|row| *row = u8::from(((draws.bits() >> 11) as f64) < share * (1u64 << 53) as f64));
        Ok(())
    })
}

/// The length in tokens of every row of a version (u32, as bytes), from its indexes.
#[pyfunction]
pub(crate) fn token_lengths<'py>(
    py: Python<'py>,
    shards: Vec<ShardParts>,
    item_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let raised = Raised::default();
    let lengths = token_source(shards, item_bytes, &raised)
        .and_then(|tokens| tokens.lengths())
        .map_err(|problem| raised.take().unwrap_or_else(|| error::from_feed(py, problem)))?;
    let bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
    Ok(PyBytes::new(py, &bytes))
}

/// The first position of a step under a schedule of batches.
#[pyfunction]
pub(crate) fn first_position(py: Python<'_>, batch: Vec<(u64, u64)>, step: u64) -> PyResult<u64> {
    let found = BatchSchedule::new(&batch).and_then(|steps| steps.positions(step));
    Ok(found.map_err(|problem| error::from_feed(py, problem.into()))?.start)
}
