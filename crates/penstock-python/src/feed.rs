//! The feed across the border: a plan comes in as plain values, batches go out as buffers.

use crate::error;
use crate::plan::{FeedPlan, Growth, PartPlan};
use crate::share::{SharingTold, told};
use crate::source::Raised;
use penstock_data::feed::share::{Member, Sharing};
use penstock_data::feed::{
    Ahead, Batch, Doing, FeedError, MakeBatch, Maker, Tally as Counts, depth_of, wire,
};
use penstock_io::Histogram;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a wait for a batch goes on before signals are looked for.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Batches of one lane, read ahead by threads.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Feed {
    ahead: Ahead,
    maker: Arc<Maker>,
    /// Where an exception of a Python source waits.
    raised: Raised,
    growth: Growth,
    /// Who else makes its batches, where they are shared.
    shared: Option<(Arc<Member>, Arc<Sharing>)>,
    /// Why a source does not grow any more.
    failures: Mutex<HashMap<usize, PyErr>>,
}

impl Feed {
    /// The exception that a failure stands for.
    fn problem(&self, py: Python<'_>, problem: FeedError) -> PyErr {
        if let FeedError::Unmeasured { source_number, .. } = &problem {
            let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(failure) = failures.get(source_number) {
                return failure.clone_ref(py);
            }
        }
        self.raised.take().unwrap_or_else(|| error::from_feed(py, problem))
    }
}

#[pymethods]
impl Feed {
    #[new]
    #[pyo3(signature = (plan, lane, step, threads, memory_bytes, share=None))]
    fn new(
        py: Python<'_>,
        plan: FeedPlan,
        lane: (u64, u64),
        step: u64,
        threads: usize,
        memory_bytes: usize,
        share: Option<&str>,
    ) -> PyResult<Self> {
        let raised = Raised::default();
        let fail = |problem: FeedError| raised.take().unwrap_or_else(|| error::from_feed(py, problem));
        // Tables may be far away.
        let (maker, growth) = py.detach(|| plan.maker(lane, &raised))?.map_err(fail)?;
        // The largest batch that is still to come decides how far ahead the memory allows to read.
        let batch_bytes = maker.batch_bytes_max(step).map_err(fail)?;
        let depth = depth_of(memory_bytes, batch_bytes, threads);
        let maker = Arc::new(maker);
        let mut making = Arc::clone(&maker) as Arc<dyn MakeBatch>;
        let shared = share.map(|key| {
            let member = Member::new(key, memory_bytes.max(2 * batch_bytes) as u64);
            py.detach(|| member.meet());
            let sharing = Arc::new(Sharing::new(Arc::clone(&making), Arc::clone(&member)));
            making = Arc::clone(&sharing) as Arc<dyn MakeBatch>;
            (member, sharing)
        });
        let ahead = Ahead::start(making, step, threads.min(depth), depth).map_err(fail)?;
        Ok(Feed { ahead, maker, raised, growth, shared, failures: Mutex::default() })
    }

    /// The next batch, or None at the end of the stream.
    fn next(&self, py: Python<'_>) -> PyResult<Option<FeedBatch>> {
        loop {
            let answer = py.detach(|| self.ahead.next(SIGNAL_INTERVAL));
            match answer {
                Ok(Ok(batch)) => return Ok(batch.map(|batch| FeedBatch { batch })),
                Ok(Err(())) => py.check_signals()?,
                Err(problem) => return Err(self.problem(py, problem)),
            }
        }
    }

    /// Batches that are made and wait.
    fn ready(&self) -> usize {
        self.ahead.ready()
    }

    /// Batches delivered, batches ready, and the last waits in seconds (f64, as bytes).
    fn waits<'py>(&self, py: Python<'py>) -> (u64, usize, Bound<'py, PyBytes>) {
        let waits = self.ahead.waits();
        let bytes: Vec<u8> = waits.waits_s.iter().flat_map(|wait| wait.to_le_bytes()).collect();
        (waits.batches, waits.ready, PyBytes::new(py, &bytes))
    }

    /// Seconds of all threads since opening: planning, reading, hashing.
    fn stage_times(&self) -> (f64, f64, f64) {
        let times = self.maker.stage_times();
        (times.plan.as_secs_f64(), times.read.as_secs_f64(), times.digest.as_secs_f64())
    }

    /// What its threads do now: read, plan, measure, share (somebody else makes the batch), or idle.
    fn stage(&self) -> &'static str {
        match self.maker.doing() {
            Some(Doing::Read) => "read",
            Some(Doing::Plan) => "plan",
            None if self.shared.is_some() => "share",
            Some(Doing::Measure) => "measure",
            None => "idle",
        }
    }

    /// Seconds that half and 99 % of all batches did not pass, by stage: planning, reading, hashing, getting them from others.
    fn stage_spread(&self) -> BTreeMap<&'static str, (f64, f64)> {
        let [plan, read, digest] = self.maker.stage_spread();
        let share = self.shared.as_ref().map(|(_, sharing)| ("share", sharing.times()));
        let stages = [("plan", plan), ("read", read), ("digest", digest)].into_iter().chain(share);
        stages.map(|(name, times)| (name, percentiles(times))).collect()
    }

    /// What it is for other processes that read the same lane, and counts; None when it reads alone on purpose.
    fn sharing(&self) -> Option<SharingTold> {
        self.shared.as_ref().map(|(member, _)| told(member))
    }

    /// How often each source has been read before a step; None where that is not known.
    fn epochs_before(&self, py: Python<'_>, step: u64) -> PyResult<Vec<Option<f64>>> {
        py.detach(|| self.maker.epochs_before(step)).map_err(|problem| error::from_feed(py, problem))
    }

    /// For each source, the share of neighbours in packs that come together again in the next epoch, from a few blocks.
    fn recurrence(&self, py: Python<'_>, blocks_max: u64) -> PyResult<Vec<f64>> {
        let streams = self.maker.streams().iter();
        py.detach(|| streams.map(|stream| stream.recurrence(blocks_max)).collect::<Result<Vec<_>, _>>())
            .map_err(|problem| error::from_feed(py, problem))
    }

    /// Adds the next part of a source that grows.
    fn add_part(&self, py: Python<'_>, source: usize, part: PartPlan) -> PyResult<()> {
        let added = py
            .detach(|| self.growth.part(source, part))?
            .and_then(|(part, epochs)| py.detach(|| self.maker.add_part(source, part, epochs)));
        added.map_err(|problem| self.problem(py, problem))
    }

    /// Says that no more parts of a source will come; steps that need more raise the exception.
    fn fail_source(&self, source: usize, problem: Bound<'_, PyAny>) {
        let reason = problem.to_string();
        let failure = PyErr::from_value(problem);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).insert(source, failure);
        self.maker.fail(source, FeedError::Unmeasured { source_number: source, reason });
    }

    /// How many rows of each source the furthest step that was begun needs.
    fn wanted(&self) -> Vec<u64> {
        self.maker.wanted()
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.ahead.close());
    }
}

fn percentiles(times: &Histogram) -> (f64, f64) {
    let seconds = |share| times.quantile(share).unwrap_or_default().as_secs_f64();
    (seconds(0.5), seconds(0.99))
}

/// One batch; a buffer of its tokens, row after row.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct FeedBatch {
    batch: Batch,
}

impl FeedBatch {
    pub(crate) fn new(batch: Batch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl FeedBatch {
    /// The batch as bytes for another process, hash included.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &wire::parts(&self.batch).slices().concat())
    }

    /// The batch that bytes are.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, packed: PyBackedBytes) -> PyResult<Self> {
        let batch = wire::read(Arc::new(packed)).map_err(|problem| error::from_feed(py, problem))?;
        Ok(Self { batch })
    }

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
            self.batch.mark_tokens(into);
            Ok(())
        })
    }

    /// 1 for tokens that count in the loss, row after row (u8); None when no source has a mask.
    fn mask<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.batch.mask().map(|mask| PyBytes::new(py, mask))
    }

    /// What a row is made of: place in the row, tokens, source, sample, first token in it, epoch.
    fn origins(&self, row: u32) -> Vec<(u32, u32, u32, u64, u32, u64)> {
        let parts = self.batch.origins_of(row).iter();
        parts.map(|o| (o.at, o.length, o.source, o.sample, o.start, o.epoch)).collect()
    }

    /// The sample of each stretch of each row, in order: its source (u32) and its row of the version (u64), as bytes.
    fn samples<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let origins = &self.batch.origins;
        let sources: Vec<u8> = origins.iter().flat_map(|origin| origin.source.to_le_bytes()).collect();
        let samples: Vec<u8> = origins.iter().flat_map(|origin| origin.sample.to_le_bytes()).collect();
        (PyBytes::new(py, &sources), PyBytes::new(py, &samples))
    }

    /// Row, source, sample and epoch of each stretch, in order (u64), as bytes.
    fn places<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let places = self.batch.origins.iter().flat_map(|origin| {
            [u64::from(origin.row), u64::from(origin.source), origin.sample, origin.epoch]
        });
        PyBytes::new(py, &places.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
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

/// What was handed out, counted in one call per batch.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Tally {
    counts: Mutex<Counts>,
}

#[pymethods]
impl Tally {
    #[new]
    fn new(sources: usize) -> Self {
        Self { counts: Mutex::new(Counts::new(sources)) }
    }

    /// Counts a batch; how many there were before it.
    fn add(&self, batch: &FeedBatch) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.add(&batch.batch);
        counts.batches - 1
    }

    /// Rows, tokens with padding, tokens of padding, and rows of each source.
    fn read(&self) -> (u64, u64, u64, Vec<u64>) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.rows, counts.tokens, counts.padding, counts.by_source.clone())
    }
}
