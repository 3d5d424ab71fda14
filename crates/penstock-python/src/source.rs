//! Where bytes come from: a path that Rust reads itself, or a Python function for stores that Python speaks to.

use penstock_io::{IoError, LocalFile, ReadAt};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// How much a sequential reader asks a Python function for at once.
const FETCH_BYTES: u64 = 8 << 20;

/// What Python passes: a path, or (name, length in bytes, function from offset and length to bytes).
#[derive(FromPyObject)]
pub(crate) enum Source {
    Remote((String, u64, Py<PyAny>)),
    Local(PathBuf),
}

/// An exception that a Python function raised inside Rust code, kept to be raised again on the way out.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    pub(crate) fn keep(&self, problem: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Source {
    /// For reading at any place.
    pub(crate) fn open(self, raised: &Raised) -> Result<Arc<dyn ReadAt>, IoError> {
        match self {
            Source::Local(path) => Ok(Arc::new(LocalFile::open(path)?)),
            Source::Remote((name, bytes, fetch)) => {
                Ok(Arc::new(Fetched { name, bytes, fetch, raised: raised.clone() }))
            }
        }
    }

    /// For reading at any place, keeping the source for later.
    pub(crate) fn open_again(&self, raised: &Raised) -> Result<Arc<dyn ReadAt>, IoError> {
        match self {
            Source::Local(path) => Ok(Arc::new(LocalFile::open(path)?)),
            Source::Remote((name, bytes, fetch)) => {
                let fetch = Python::attach(|py| fetch.clone_ref(py));
                Ok(Arc::new(Fetched { name: name.clone(), bytes: *bytes, fetch, raised: raised.clone() }))
            }
        }
    }

    /// For reading from beginning to end.
    pub(crate) fn stream(self, raised: &Raised) -> Result<Box<dyn Read + Send>, IoError> {
        match self {
            Source::Local(path) => {
                let name = path.display().to_string();
                let file =
                    std::fs::File::open(path).map_err(|error| IoError::from_system(&name, None, &error))?;
                Ok(Box::new(file))
            }
            remote => {
                Ok(Box::new(Sequential { source: remote.open(raised)?, at: 0, buffer: Vec::new(), used: 0 }))
            }
        }
    }
}

/// Bytes that a Python function fetches.
struct Fetched {
    name: String,
    bytes: u64,
    /// `fetch(offset, length) -> bytes`, exactly `length` of them.
    fetch: Py<PyAny>,
    /// Where an exception of the function waits for the caller.
    raised: Raised,
}

impl ReadAt for Fetched {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let wanted = into.len() as u64;
        let got = Python::attach(|py| -> PyResult<u64> {
            let answer = self.fetch.bind(py).call1((offset, wanted))?;
            let data = answer.cast::<PyBytes>()?.as_bytes();
            let length = data.len().min(into.len());
            into[..length].copy_from_slice(&data[..length]);
            Ok(length as u64)
        });
        match got {
            Ok(got) if got == wanted => Ok(()),
            Ok(got) => Err(IoError::Short { name: self.name.clone(), offset, wanted, got }),
            Err(problem) => {
                let reason = problem.to_string();
                self.raised.keep(problem);
                Err(IoError::Other { name: self.name.clone(), offset: Some(offset), reason })
            }
        }
    }
}

/// A sequential view of something that is read by place, in large pieces.
struct Sequential {
    source: Arc<dyn ReadAt>,
    at: u64,
    buffer: Vec<u8>,
    /// How much of the buffer was given out.
    used: usize,
}

impl Read for Sequential {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() {
            let length = FETCH_BYTES.min(self.source.len() - self.at);
            self.buffer.resize(length as usize, 0);
            self.used = 0;
            self.source.read_at(self.at, &mut self.buffer).map_err(io::Error::other)?;
            self.at += length;
        }
        let count = into.len().min(self.buffer.len() - self.used);
        into[..count].copy_from_slice(&self.buffer[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}
