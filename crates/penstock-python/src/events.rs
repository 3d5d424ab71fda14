//! Events across the border: one recorder per process, spans as context managers, recordings read frame by frame.

use crate::error;
use arc_swap::ArcSwapOption;
use penstock_events::recorder::forget_thread_number;
use penstock_events::{Encoder, EventFile, Fact, Recorder, Value, read_columns};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The recorder of this process, if one was started.
static RECORDER: ArcSwapOption<Recorder> = ArcSwapOption::const_empty();

/// Starts recording into a new file.
#[pyfunction]
#[pyo3(signature = (path, *, host, argv, bytes_max))]
pub(crate) fn events_start(
    py: Python<'_>,
    path: PathBuf,
    host: &str,
    argv: Vec<String>,
    bytes_max: u64,
) -> PyResult<()> {
    if let Some(recorder) = RECORDER.load_full() {
        return Err(PyRuntimeError::new_err(format!("already recording into {}", recorder.path().display())));
    }
    let recorder =
        Recorder::start(&path, host, &argv, bytes_max).map_err(|reason| error::from_events(py, reason))?;
    RECORDER.store(Some(Arc::new(recorder)));
    Ok(())
}

/// Ends the recording after a last drain.
#[pyfunction]
pub(crate) fn events_stop(py: Python<'_>) {
    // Dropping joins the spool's thread, which never needs the GIL; others may go on meanwhile.
    py.detach(|| drop(RECORDER.swap(None)));
}

/// In the child of a fork: forget the parent's recorder without touching its file or its absent thread.
#[pyfunction]
pub(crate) fn events_abandon() {
    forget_thread_number();
    if let Some(recorder) = RECORDER.swap(None) {
        std::mem::forget(recorder);
    }
}

/// Waits until what was recorded before is on file.
#[pyfunction]
pub(crate) fn events_flush(py: Python<'_>, timeout_s: f64) -> bool {
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::ZERO);
    py.detach(|| RECORDER.load_full().is_none_or(|recorder| recorder.flush(timeout)))
}

/// The file that is being recorded into.
#[pyfunction]
pub(crate) fn events_path() -> Option<PathBuf> {
    RECORDER.load().as_ref().map(|recorder| recorder.path().to_path_buf())
}

/// Written, lost, bytes, and the last failure.
#[pyfunction]
pub(crate) fn events_statistics() -> Option<(u64, u64, u64, Option<String>)> {
    let statistics = RECORDER.load().as_ref()?.statistics();
    Some((statistics.written, statistics.lost, statistics.bytes, statistics.error))
}

/// Records that something happened now.
#[pyfunction]
#[pyo3(signature = (kind, /, **fields))]
pub(crate) fn record(kind: &str, fields: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    if let Some(recorder) = RECORDER.load().as_ref() {
        let mut encoder = recorder.point(kind);
        add_fields(&mut encoder, fields)?;
        recorder.push(&encoder);
    }
    Ok(())
}

/// Records, from Rust, that something happened now.
pub(crate) fn record_point(kind: &str, fields: &[(&str, &str)]) {
    if let Some(recorder) = RECORDER.load().as_ref() {
        let mut encoder = recorder.point(kind);
        fields.iter().for_each(|(key, value)| encoder.text(key, value));
        recorder.push(&encoder);
    }
}

/// Records that something begins now; leaving the returned context records its end.
#[pyfunction]
#[pyo3(signature = (kind, /, **fields))]
pub(crate) fn span(kind: &str, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Span> {
    let guard = RECORDER.load();
    let Some(recorder) = guard.as_ref() else { return Ok(Span { number: 0 }) };
    let (number, mut encoder) = recorder.begin(kind);
    add_fields(&mut encoder, fields)?;
    recorder.push(&encoder);
    Ok(Span { number })
}

/// A span that has begun.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Span {
    /// Joins the end with the beginning; 0 when nothing is being recorded.
    number: u64,
}

#[pymethods]
impl Span {
    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__(
        &self,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (value, traceback);
        if self.number == 0 {
            return Ok(());
        }
        if let Some(recorder) = RECORDER.load().as_ref() {
            let mut encoder = recorder.end(self.number);
            if !kind.is_none() {
                let name = kind.getattr("__name__")?;
                encoder.text("error", &name.extract::<String>()?);
            }
            recorder.push(&encoder);
        }
        Ok(())
    }
}

/// Adds each field by its type; what is neither number, text nor truth value is recorded as its `repr`.
fn add_fields(encoder: &mut Encoder, fields: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some(fields) = fields else { return Ok(()) };
    for (key, value) in fields {
        let key = key.cast::<PyString>()?;
        let key = key.to_cow()?;
        if let Ok(text) = value.cast::<PyString>() {
            encoder.text(&key, &text.to_string_lossy());
        } else if let Ok(truth) = value.cast::<PyBool>() {
            encoder.bool(&key, truth.is_true());
        } else if value.is_none() {
            encoder.none(&key);
        } else if value.is_instance_of::<PyInt>() {
            match value.extract::<i64>() {
                Ok(number) => encoder.int(&key, number),
                Err(_) => encoder.text(&key, &value.str()?.to_string_lossy()),
            }
        } else if value.is_instance_of::<PyFloat>() {
            encoder.float(&key, value.extract()?);
        } else if let Ok(number) = value.call_method0("__index__").and_then(|number| number.extract::<i64>())
        {
            encoder.int(&key, number);
        } else if let Ok(number) = value.extract::<f64>() {
            encoder.float(&key, number);
        } else {
            encoder.text(&key, &value.repr()?.to_string_lossy());
        }
    }
    Ok(())
}

/// Reads a recording frame by frame.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct EventReader {
    file: Mutex<EventFile>,
}

#[pymethods]
impl EventReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let file = py.detach(|| EventFile::open(&path)).map_err(|reason| error::from_events(py, reason))?;
        Ok(EventReader { file: Mutex::new(file) })
    }

    /// Who recorded, as JSON.
    #[getter]
    fn header(&self) -> String {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).header().to_owned()
    }

    /// Bytes after the last whole frame; known at the end.
    #[getter]
    fn torn_bytes(&self) -> u64 {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).torn_bytes()
    }

    /// The next frame's records, or `None` at the end.
    fn next_frame<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let records = py
            .detach(|| self.file.lock().unwrap_or_else(PoisonError::into_inner).next_frame())
            .map_err(|reason| error::from_events(py, reason))?;
        let Some(records) = records else { return Ok(None) };
        let list = PyList::empty(py);
        for record in records {
            let fields = PyDict::new(py);
            for (key, value) in record.fields {
                match value {
                    Value::None => fields.set_item(key, py.None())?,
                    Value::Bool(truth) => fields.set_item(key, truth)?,
                    Value::Int(number) => fields.set_item(key, number)?,
                    Value::Float(number) => fields.set_item(key, number)?,
                    Value::Text(text) => fields.set_item(key, text)?,
                }
            }
            let fact = match record.fact {
                Fact::Point => "point",
                Fact::Begin => "begin",
                Fact::End => "end",
                Fact::Lost => "lost",
                Fact::Closed => "closed",
            };
            let row = (fact, record.time_ns, record.thread, record.span, record.kind, fields, record.cut);
            list.append(row.into_pyobject(py)? as Bound<'py, PyTuple>)?;
        }
        Ok(Some(list))
    }
}

/// A whole recording as arrays.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct EventColumns {
    columns: penstock_events::EventColumns,
}

#[pymethods]
impl EventColumns {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let columns = py.detach(|| read_columns(&path)).map_err(|reason| error::from_events(py, reason))?;
        Ok(EventColumns { columns })
    }

    /// Who recorded, as JSON.
    #[getter]
    fn header(&self) -> &str {
        &self.columns.header
    }

    /// Names that the column `kind` counts into.
    #[getter]
    fn kinds(&self) -> Vec<String> {
        self.columns.kinds.clone()
    }

    /// Events that the recorder had to drop.
    #[getter]
    fn lost(&self) -> i64 {
        self.columns.lost
    }

    /// Whether the recorder was stopped in order.
    #[getter]
    fn closed(&self) -> bool {
        self.columns.is_closed
    }

    /// Bytes after the last whole frame.
    #[getter]
    fn torn_bytes(&self) -> u64 {
        self.columns.torn_bytes
    }

    /// Little-endian integers: `kind` and `thread` of 32 bits, `time_ns` and `duration_ns` of 64.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        columns.set_item("kind", bytes_of(py, &self.columns.kind, u32::to_le_bytes)?)?;
        columns.set_item("time_ns", bytes_of(py, &self.columns.time_ns, u64::to_le_bytes)?)?;
        columns.set_item("duration_ns", bytes_of(py, &self.columns.duration_ns, i64::to_le_bytes)?)?;
        columns.set_item("thread", bytes_of(py, &self.columns.thread, u32::to_le_bytes)?)?;
        Ok(columns)
    }
}

fn bytes_of<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    bytes: fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, values.len() * N, |into| {
        into.chunks_exact_mut(N).zip(values).for_each(|(place, value)| place.copy_from_slice(&bytes(*value)));
        Ok(())
    })
}
