//! Where bytes come from: a path or an object of a store, which Rust reads itself, or a Python function for what only Python can join.

use penstock_data::{DataError, Index};
use penstock_io::{IoError, LocalFile, ReadAhead, ReadAt, SequentialReader};
use penstock_store::cache::chosen_for;
use penstock_store::{Client, JoinedFile, PieceFile, RemoteFile, open_whole};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::StoreClient;

/// What Python names to be read; `SourceValues` in `source.pyi`.
pub(crate) enum Source {
    File(PathBuf),
    /// An object of a store; the stamp is what the store said of it when it was registered.
    StoreObject {
        client: Arc<Client>,
        name: String,
        bytes: u64,
        stamp: String,
    },
    /// A small object that is named by its content.
    WholeObject {
        client: Arc<Client>,
        name: String,
        digest: String,
    },
    /// Objects that are read as one file: what errors call it, and their names and lengths.
    JoinedObjects {
        client: Arc<Client>,
        name: String,
        objects: Vec<(String, u64)>,
    },
    /// Bytes that a Python function reads: `read(offset, length) -> bytes`.
    PythonReader {
        name: String,
        bytes: u64,
        read: Py<PyAny>,
    },
}

/// The same as Python passes it: tuples tell themselves apart by their lengths and types.
#[derive(FromPyObject)]
enum SourceValues {
    StoreObject(Py<StoreClient>, String, u64, String),
    WholeObject(Py<StoreClient>, String, String),
    JoinedObjects(Py<StoreClient>, String, Vec<(String, u64)>),
    PythonReader(String, u64, Py<PyAny>),
    File(PathBuf),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Source {
    type Error = PyErr;

    fn extract(passed: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let of = |client: Py<StoreClient>| Arc::clone(&client.get().client);
        Ok(match passed.extract()? {
            SourceValues::StoreObject(client, name, bytes, stamp) => {
                Self::StoreObject { client: of(client), name, bytes, stamp }
            }
            SourceValues::WholeObject(client, name, digest) => {
                Self::WholeObject { client: of(client), name, digest }
            }
            SourceValues::JoinedObjects(client, name, objects) => {
                Self::JoinedObjects { client: of(client), name, objects }
            }
            SourceValues::PythonReader(name, bytes, read) => Self::PythonReader { name, bytes, read },
            SourceValues::File(path) => Self::File(path),
        })
    }
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
    /// Whether single objects of a store are behind it, which are far away.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Self::StoreObject { .. })
    }

    /// For reading at any place, as the bytes are at their origin.
    pub(crate) fn open(&self, raised: &Raised) -> Result<Arc<dyn ReadAt>, IoError> {
        match self {
            Self::File(path) => Ok(Arc::new(LocalFile::open(path)?)),
            Self::StoreObject { client, name, bytes, stamp } => {
                Ok(Arc::new(RemoteFile::open_stamped(client, name, *bytes, stamp)))
            }
            Self::WholeObject { client, name, digest } => {
                open_whole(client, chosen_for(client).as_deref(), name, digest)
            }
            Self::JoinedObjects { client, name, objects } => {
                Ok(Arc::new(JoinedFile::open(client, name, objects.clone())))
            }
            Self::PythonReader { name, bytes, read } => {
                let read = Python::attach(|py| read.clone_ref(py));
                Ok(Arc::new(PythonFile { name: name.clone(), bytes: *bytes, read, raised: raised.clone() }))
            }
        }
    }

    /// For reading at any place what an index describes; what is far comes piece by piece through the cache of the host.
    pub(crate) fn open_indexed(
        &self,
        raised: &Raised,
        index: &Arc<Index>,
    ) -> Result<Arc<dyn ReadAt>, DataError> {
        let origin = self.open(raised)?;
        let Ok(key) = index.document().digest.parse() else { return Ok(origin) };
        let pieces = match self {
            Self::StoreObject { client, .. } => {
                PieceFile::new(origin, key, index.clone(), chosen_for(client))?
            }
            Self::JoinedObjects { client, objects, .. } => {
                let lengths: Vec<u64> = objects.iter().map(|(_, bytes)| *bytes).collect();
                PieceFile::of_files(origin, key, index.clone(), chosen_for(client), &lengths)?
            }
            Self::WholeObject { .. } | Self::PythonReader { .. } | Self::File(_) => return Ok(origin),
        };
        Ok(Arc::new(pieces))
    }

    /// For reading from beginning to end.
    pub(crate) fn stream(self, raised: &Raised) -> Result<Box<dyn Read + Send>, IoError> {
        match &self {
            Self::File(path) => {
                let name = path.display().to_string();
                let file =
                    std::fs::File::open(path).map_err(|error| IoError::from_system(&name, None, &error))?;
                Ok(Box::new(file))
            }
            Self::StoreObject { .. } => Ok(Box::new(ReadAhead::start(self.open(raised)?)?)),
            Self::WholeObject { .. } | Self::JoinedObjects { .. } | Self::PythonReader { .. } => {
                Ok(Box::new(SequentialReader::new(self.open(raised)?)))
            }
        }
    }
}

/// Bytes that a Python function reads.
struct PythonFile {
    name: String,
    bytes: u64,
    /// `read(offset, length) -> bytes`, exactly `length` of them.
    read: Py<PyAny>,
    /// Where an exception of the function waits for the caller.
    raised: Raised,
}

impl ReadAt for PythonFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn changes_unseen(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let wanted = into.len() as u64;
        let got = Python::attach(|py| -> PyResult<u64> {
            let answer = self.read.bind(py).call1((offset, wanted))?;
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
