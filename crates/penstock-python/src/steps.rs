//! The step table across the border: one writer per loop, files read whole.

use crate::error;
use arc_swap::ArcSwapOption;
use penstock_events::steps::{self, Column, Kind, parts};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rows, lost rows, late values, bytes, bytes of blocks, values in blocks, and the last failure.
type Statistics = (u64, u64, u64, u64, u64, u64, Option<String>);

/// Writes the rows of one rank of one life.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct StepWriter {
    /// Empty when it is closed. Whoever waits for the disk (`flush`) holds up nobody who has a row.
    writer: ArcSwapOption<steps::StepWriter>,
}

impl StepWriter {
    fn with<T>(&self, act: impl FnOnce(&steps::StepWriter) -> T) -> Option<T> {
        self.writer.load().as_deref().map(act)
    }
}

#[pymethods]
impl StepWriter {
    #[new]
    #[pyo3(signature = (folder, stem, *, header, columns, bytes_max))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        stem: &str,
        header: &str,
        columns: Vec<String>,
        bytes_max: u64,
    ) -> PyResult<Self> {
        let columns = columns.into_iter().map(|name| Column { name, kind: Kind::Integer }).collect();
        let writer = py
            .detach(|| steps::StepWriter::start(&folder, stem, header, columns, bytes_max))
            .map_err(|reason| error::from_events(py, reason))?;
        Ok(StepWriter { writer: ArcSwapOption::from_pointee(writer) })
    }

    /// The block file.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.with(|writer| writer.path().to_path_buf())
    }

    /// A step begins; a negative one says that none is under way.
    fn begin(&self, step: i64, at: i64) {
        self.with(|writer| writer.begin(step, at));
    }

    /// A step is over; the number of its row.
    fn row(&self, values: Vec<i64>) -> u64 {
        self.with(|writer| writer.row(values)).unwrap_or(u64::MAX)
    }

    /// An integer of an earlier row.
    fn patch(&self, row: u64, column: usize, value: i64) {
        self.with(|writer| writer.patch(row, column, value));
    }

    /// A floating-point number of an earlier row.
    fn patch_float(&self, row: u64, column: usize, value: f64) {
        self.with(|writer| writer.patch(row, column, value.to_bits() as i64));
    }

    /// The number of a column, which is added unless it is there.
    #[pyo3(signature = (name, *, is_float))]
    fn column(&self, name: &str, is_float: bool) -> Option<usize> {
        let kind = if is_float { Kind::Float } else { Kind::Integer };
        self.with(|writer| writer.column(name, kind)).flatten()
    }

    /// Several clocks at one moment.
    fn anchor(&self, boot: i64, monotonic: i64, wall: i64) {
        self.with(|writer| writer.anchor(boot, monotonic, wall));
    }

    /// The checkpoint before a step was committed.
    fn commit(&self, step: i64) {
        self.with(|writer| writer.commit(step));
    }

    /// Waits until what was given before is on file.
    fn flush(&self, py: Python<'_>, timeout_s: f64) -> bool {
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::ZERO);
        py.detach(|| self.with(|writer| writer.flush(timeout))).unwrap_or(false)
    }

    /// What has become of what was given.
    fn statistics(&self) -> Option<Statistics> {
        let seen = self.with(steps::StepWriter::statistics)?;
        Some((seen.rows, seen.lost, seen.late, seen.bytes, seen.block_bytes, seen.block_values, seen.error))
    }

    /// Ends the thread after a last drain.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.writer.swap(None)));
    }
}

/// What a pair of step files says.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct StepFile {
    table: steps::StepFile,
}

#[pymethods]
impl StepFile {
    #[new]
    #[pyo3(signature = (path, *, columns = None))]
    fn new(py: Python<'_>, path: PathBuf, columns: Option<Vec<String>>) -> PyResult<Self> {
        let table = py
            .detach(|| steps::read_steps(&path, columns.as_deref()))
            .map_err(|reason| error::from_events(py, reason))?;
        Ok(StepFile { table })
    }

    /// Who wrote, as JSON.
    #[getter]
    fn header(&self) -> &str {
        &self.table.header
    }

    /// How many rows there are.
    #[getter]
    fn rows(&self) -> usize {
        self.table.rows
    }

    /// Kind and values of every column.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.table.columns)
    }

    /// Kind and values of every column of the roll-ups.
    fn rolled<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.table.rolled.columns)
    }

    /// Boot time, monotonic time and wall time of every anchor.
    #[getter]
    fn anchors(&self) -> Vec<(i64, i64, i64)> {
        self.table.anchors.clone()
    }

    /// Steps before which a checkpoint was committed.
    #[getter]
    fn commits(&self) -> Vec<i64> {
        self.table.commits.clone()
    }

    /// Rows that the writer has lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.table.lost
    }

    /// Whether it was closed in order.
    #[getter]
    fn is_closed(&self) -> bool {
        self.table.is_closed
    }

    /// Number and beginning of a step that has no row.
    #[getter]
    fn begun(&self) -> Option<(i64, i64)> {
        self.table.begun
    }

    /// File, place and reason of what could not be read.
    #[getter]
    fn faults(&self) -> Vec<(PathBuf, u64, String)> {
        let faults = self.table.faults.iter();
        faults.map(|(path, fault)| (path.clone(), fault.offset, fault.reason.clone())).collect()
    }
}

/// A table read while it is written.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct StepFollower {
    follower: Mutex<steps::StepFollower>,
}

#[pymethods]
impl StepFollower {
    #[new]
    #[pyo3(signature = (path, *, columns))]
    fn new(path: PathBuf, columns: Vec<String>) -> Self {
        StepFollower { follower: Mutex::new(steps::StepFollower::new(&path, columns)) }
    }

    /// Takes what is new.
    fn look(&self, py: Python<'_>) -> PyResult<StepNews> {
        let looked = py.detach(|| self.follower.lock().unwrap_or_else(PoisonError::into_inner).look());
        Ok(StepNews { news: looked.map_err(|reason| error::from_events(py, reason))? })
    }
}

/// What is new in a table.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct StepNews {
    news: steps::StepNews,
}

#[pymethods]
impl StepNews {
    /// Numbers of the rows.
    #[getter]
    fn numbers(&self) -> Vec<u64> {
        self.news.numbers.clone()
    }

    /// Kind and values of every column.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.news.columns)
    }

    /// Number and beginning of a step that has no row.
    #[getter]
    fn begun(&self) -> Option<(i64, i64)> {
        self.news.begun
    }

    /// Whether the table was closed in order.
    #[getter]
    fn is_closed(&self) -> bool {
        self.news.is_closed
    }

    /// Rows that the writer has lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.news.lost
    }

    /// How many pieces of the files could not be read.
    #[getter]
    fn faults(&self) -> u64 {
        self.news.faults
    }

    /// Whether rows before these were passed over.
    #[getter]
    fn is_anew(&self) -> bool {
        self.news.is_anew
    }
}

fn as_dict<'py>(py: Python<'py>, columns: &[(Column, Vec<i64>)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (column, values) in columns {
        let bytes = PyBytes::new_with(py, values.len() * 8, |into| {
            into.chunks_exact_mut(8)
                .zip(values)
                .for_each(|(at, value)| at.copy_from_slice(&value.to_ne_bytes()));
            Ok(())
        })?;
        dict.set_item(&column.name, (column.kind.word(), bytes))?;
    }
    Ok(dict)
}

/// Divides the time of steps into parts.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct PartClock {
    clock: Arc<Mutex<parts::PartClock>>,
}

fn held(clock: &Mutex<parts::PartClock>) -> MutexGuard<'_, parts::PartClock> {
    clock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl PartClock {
    #[new]
    fn new(rest: u8) -> PyResult<Self> {
        if usize::from(rest) >= parts::PARTS_MAX {
            return Err(PyValueError::new_err(format!("there are {} parts", parts::PARTS_MAX)));
        }
        let clock = parts::PartClock::new(rest, parts::boottime_ns());
        Ok(PartClock { clock: Arc::new(Mutex::new(clock)) })
    }

    /// When the row began.
    #[getter]
    fn begin(&self) -> i64 {
        held(&self.clock).begin()
    }

    /// A row begins now, after something that is in no row.
    fn restart(&self) {
        held(&self.clock).restart(parts::boottime_ns());
    }

    /// From now on time belongs to a part.
    fn enter(&self, part: u8) {
        held(&self.clock).enter(part, parts::boottime_ns());
    }

    /// The innermost part is over.
    fn leave(&self) {
        held(&self.clock).leave(parts::boottime_ns());
    }

    /// The innermost part.
    fn current(&self) -> u8 {
        held(&self.clock).current()
    }

    /// Whether a part is around what happens now.
    fn is_open(&self, part: u8) -> bool {
        held(&self.clock).is_open(part)
    }

    /// The row ends and the next one begins: begin, end, ns by part, and a bit for each part that was entered.
    fn turn(&self, count: usize) -> (i64, i64, Vec<i64>, u32) {
        let turn = held(&self.clock).turn(parts::boottime_ns());
        (turn.begin, turn.end, turn.ns[..count.min(parts::PARTS_MAX)].to_vec(), turn.entered)
    }

    /// A block whose time belongs to a part.
    fn part(&self, number: u8) -> Part {
        Part { clock: Arc::clone(&self.clock), number }
    }
}

/// A part of a step as a block. One object serves all blocks of a part: what is open is the clock's.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Part {
    clock: Arc<Mutex<parts::PartClock>>,
    number: u8,
}

#[pymethods]
impl Part {
    fn __enter__(&self) {
        held(&self.clock).enter(self.number, parts::boottime_ns());
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__(&self, kind: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, traceback: &Bound<'_, PyAny>) {
        let _ = (kind, value, traceback);
        held(&self.clock).leave(parts::boottime_ns());
    }
}
