//! Stores: the client of a root, and what this process asks of stores.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::StoreProblem;
use penstock_store::counts::{COUNTS, TIMES};
use penstock_store::{Client, Described, FileBody, Limits, Options, Slices, flying, interruptible};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error;
use crate::source::Raised;
use crate::state::{bytes_of, writable};

/// Name, length, stamp, and the entity tag where there is one.
type EntryParts = (String, u64, String, Option<String>);

/// The client of a root in a store.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct StoreClient {
    /// For those who read files of the store without Python.
    pub(crate) client: Arc<Client>,
}

#[pymethods]
impl StoreClient {
    #[new]
    #[pyo3(signature = (url, options, limits))]
    fn new(
        py: Python<'_>,
        url: &str,
        options: HashMap<String, String>,
        limits: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        // The environment is read while no other thread of Python can change it.
        let options = Options::new(options);
        let limits = limits_of(limits)?;
        let client = Client::open(url, options, limits).map_err(|problem| error::from_store(py, problem))?;
        Ok(Self { client })
    }

    /// Where the root is.
    #[getter]
    fn url(&self) -> &str {
        self.client.url()
    }

    /// All bytes of an object.
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let whole = self.run(py, |client| client.get(name))?;
        Ok(PyBytes::new(py, &whole))
    }

    /// Exactly so many bytes from a place on.
    #[pyo3(signature = (name, start, length, etag=None))]
    fn get_range<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        start: u64,
        length: usize,
        etag: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if length < 2 {
            // So short ones are shared by all of Python and may not be written.
            return PyBytes::new_with(py, length, |into| {
                self.run(py, |client| client.read_into(name, start, into, etag).map(drop))
            });
        }
        let (bytes, into) = zeroed(py, length)?;
        self.run(py, |client| client.read_into(name, start, into, etag))?;
        Ok(bytes)
    }

    /// Fills a writable buffer with the bytes from a place on.
    #[pyo3(signature = (name, start, into, etag=None))]
    fn read_into(
        &self,
        py: Python<'_>,
        name: &str,
        start: u64,
        into: PyBuffer<u8>,
        etag: Option<&str>,
    ) -> PyResult<()> {
        // SAFETY: the exporter keeps the memory while we hold the buffer, which is until the read is done; that nobody else uses it
        // meanwhile is the caller's promise, as with every function that fills a buffer.
        let memory = unsafe { std::slice::from_raw_parts_mut(writable(&into)?, into.len_bytes()) };
        self.run(py, |client| client.read_into(name, start, memory, etag).map(drop))
    }

    /// Makes an object unless it exists; whether this call made it.
    fn put_if_absent(&self, py: Python<'_>, name: &str, data: &[u8]) -> PyResult<bool> {
        let data = data.to_vec();
        self.run(py, |client| client.put_if_absent(name, data.into()))
    }

    /// The same with the content of a file.
    fn put_file_if_absent(&self, py: Python<'_>, name: &str, path: PathBuf) -> PyResult<bool> {
        let body = FileBody::open(&path)?;
        self.run(py, |client| client.put_body_if_absent(name, &body))
    }

    /// Makes or replaces an object; its length.
    fn put_buffers(&self, py: Python<'_>, name: &str, buffers: Vec<PyBuffer<u8>>) -> PyResult<usize> {
        let slices = buffers.iter().map(bytes_of).collect::<PyResult<Vec<&[u8]>>>()?;
        let length = slices.iter().map(|slice| slice.len()).sum();
        let body = Slices(slices);
        self.run(py, |client| client.put(name, &body))?;
        Ok(length)
    }

    /// What the store says about an object.
    fn describe(&self, py: Python<'_>, name: &str) -> PyResult<EntryParts> {
        self.run(py, |client| client.describe(name)).map(parts)
    }

    /// All objects below a prefix, sorted by name.
    fn entries(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<EntryParts>> {
        Ok(self.run(py, |client| client.list(prefix))?.into_iter().map(parts).collect())
    }

    /// All objects whose names begin with a text, sorted by name, and names that no request can name.
    fn entries_beginning(&self, py: Python<'_>, text: &str) -> PyResult<(Vec<EntryParts>, Vec<String>)> {
        let listed = self.run(py, |client| client.list_beginning(text))?;
        Ok((listed.objects.into_iter().map(parts).collect(), listed.unreadable))
    }

    /// Removes an object.
    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |client| client.delete(name))
    }
}

/// Bytes that nobody has seen yet, and their memory. Python's own constructor lets the system give zeros page by page when they are first
/// written, where `PyBytes::new_with` writes them all beforehand: of a large read that is a third of the time.
fn zeroed<'py>(py: Python<'py>, length: usize) -> PyResult<(Bound<'py, PyBytes>, &'py mut [u8])> {
    let bytes = py.get_type::<PyBytes>().call1((length,))?.cast_into::<PyBytes>()?;
    // SAFETY: the object was just made and only we refer to it, so its memory may still be written; it lives as long as `made`.
    let into = unsafe { std::slice::from_raw_parts_mut(bytes.as_bytes().as_ptr().cast_mut(), length) };
    Ok((bytes, into))
}

impl StoreClient {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        doing: impl FnOnce(&Client) -> Result<T, StoreProblem> + Send,
    ) -> PyResult<T> {
        let raised = Raised::default();
        let seen = raised.clone();
        // Whoever presses Ctrl-C does not want to wait for a deadline. Python's signals are seen by its first thread only.
        let stopped = move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(signal) => {
                seen.keep(signal);
                true
            }
        };
        let outcome = py.detach(|| match is_first_thread() {
            true => interruptible(stopped, || doing(&self.client)),
            false => doing(&self.client),
        });
        match raised.take() {
            Some(signal) => Err(signal),
            None => outcome.map_err(|problem| error::from_store(py, problem)),
        }
    }
}

fn is_first_thread() -> bool {
    // SAFETY: both only ask for a number.
    unsafe { libc::gettid() == libc::getpid() }
}

fn parts(described: Described) -> EntryParts {
    (described.name, described.bytes, described.stamp, described.etag)
}

/// Limits by the names of `penstock.store.Limits`; what is not said keeps its default.
fn limits_of(said: &Bound<'_, PyDict>) -> PyResult<Limits> {
    let mut limits = Limits::default();
    for (name, value) in said {
        let name: String = name.extract()?;
        let seconds = || -> PyResult<Duration> {
            Duration::try_from_secs_f64(value.extract()?)
                .map_err(|_| PyValueError::new_err(format!("{name} has to be a time in seconds")))
        };
        match name.as_str() {
            "connect_s" => limits.connect = seconds()?,
            "read_s" => limits.read = seconds()?,
            "total_s" => limits.total = seconds()?,
            "tries" => limits.tries = value.extract()?,
            "pause_s" => limits.pause = seconds()?,
            "pause_max_s" => limits.pause_max = seconds()?,
            "retry_burst" => limits.retry_burst = value.extract()?,
            "retry_rate" => limits.retry_rate = value.extract()?,
            "hedge_share" => limits.hedge_share = value.extract()?,
            "hedge_samples" => limits.hedge_samples = value.extract()?,
            "requests_max" => limits.requests_max = value.extract()?,
            "request_rate" => limits.request_rate = value.extract()?,
            "byte_rate" => limits.byte_rate = value.extract()?,
            "part_bytes" => limits.part_bytes = value.extract()?,
            _ => return Err(PyValueError::new_err(format!("there is no limit called {name}"))),
        }
    }
    Ok(limits)
}

/// What this process has asked of stores: counts, and for every duration how many, p50 and p99 in seconds.
#[pyfunction]
pub(crate) fn store_counts(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for (name, count) in COUNTS.all() {
        all.set_item(name, count)?;
    }
    for (name, times) in TIMES.all() {
        let quantile = |share: f64| times.quantile(share).map(|time| time.as_secs_f64());
        all.set_item(format!("{name}_times"), times.count())?;
        all.set_item(format!("{name}_p50_s"), quantile(0.5))?;
        all.set_item(format!("{name}_p99_s"), quantile(0.99))?;
    }
    Ok(all)
}

/// Verb, URL, range, stage and age in seconds.
type FlightParts = (&'static str, String, Option<(u64, u64)>, &'static str, f64);

/// Requests that are under way, the oldest first.
#[pyfunction]
pub(crate) fn store_flying() -> Vec<FlightParts> {
    let parts = |flight: flying::Flight| {
        let range = flight.range.map(|range| (range.start, range.end));
        (flight.verb, flight.url, range, flight.stage.name(), flight.age.as_secs_f64())
    };
    flying::all().into_iter().map(parts).collect()
}
