//! Where bytes come from: a path or an object of a store, which Rust reads itself, or a Python function for what only Python can join.

use penstock_data::{DataError, Index};
use penstock_io::{Digest, IoError, LocalFile, MemoryFile, ReadAt};
use penstock_store::{Client, JoinedFile, PieceFile, RemoteFile};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache;
use crate::store::StoreClient;

/// How much a sequential reader asks for at once.
const FETCH_BYTES: u64 = 8 << 20;
/// How many such parts are read ahead of it.
const PARTS_AHEAD: usize = 2;

/// What Python passes: a path; an object (client, name, length, stamp); a whole small object (client, name, digest); objects that are
/// joined (client, name of all, names and lengths); or (name, length, function from offset and length to bytes).
#[derive(FromPyObject)]
pub(crate) enum Source {
    Far((Py<StoreClient>, String, u64, String)),
    Object((Py<StoreClient>, String, String)),
    Joined((Py<StoreClient>, String, Vec<(String, u64)>)),
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
    /// For reading at any place, as the bytes are at their origin.
    pub(crate) fn open(&self, raised: &Raised) -> Result<Arc<dyn ReadAt>, IoError> {
        match self {
            Source::Local(path) => Ok(Arc::new(LocalFile::open(path)?)),
            Source::Far((client, name, bytes, stamp)) => {
                Ok(Arc::new(RemoteFile::open(&client.get().client, name, *bytes, pin(stamp))))
            }
            Source::Object((client, name, digest)) => object(&client.get().client, name, digest),
            Source::Joined((client, name, objects)) => {
                Ok(Arc::new(JoinedFile::open(&client.get().client, name, objects.clone())))
            }
            Source::Remote((name, bytes, fetch)) => {
                let fetch = Python::attach(|py| fetch.clone_ref(py));
                Ok(Arc::new(Fetched { name: name.clone(), bytes: *bytes, fetch, raised: raised.clone() }))
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
        let behind = |client: &Py<StoreClient>| cache::of_client(&client.get().client);
        let pieces = match self {
            Source::Far((client, ..)) => PieceFile::new(origin, key, index.clone(), behind(client))?,
            Source::Joined((client, _, objects)) => {
                let lengths: Vec<u64> = objects.iter().map(|(_, bytes)| *bytes).collect();
                PieceFile::of_files(origin, key, index.clone(), behind(client), &lengths)?
            }
            Source::Object(_) | Source::Remote(_) | Source::Local(_) => return Ok(origin),
        };
        Ok(Arc::new(pieces))
    }

    /// For reading from beginning to end.
    pub(crate) fn stream(self, raised: &Raised) -> Result<Box<dyn Read + Send>, IoError> {
        match &self {
            Source::Local(path) => {
                let name = path.display().to_string();
                let file =
                    std::fs::File::open(path).map_err(|error| IoError::from_system(&name, None, &error))?;
                Ok(Box::new(file))
            }
            Source::Far(_) => Ok(Box::new(Ahead::new(self.open(raised)?)?)),
            Source::Object(_) | Source::Joined(_) | Source::Remote(_) => {
                Ok(Box::new(Sequential { source: self.open(raised)?, at: 0, buffer: Vec::new(), used: 0 }))
            }
        }
    }
}

/// The entity tag that a stamp is, where a read can be pinned to it; other stamps are times, tags that say "about the same", or several.
fn pin(stamp: &str) -> Option<String> {
    let tag = stamp.strip_prefix('"')?.strip_suffix('"')?;
    (!tag.contains('"')).then(|| stamp.to_owned())
}

/// Something far that is read block by block from beginning to end: what was read last is kept, in large parts.
pub(crate) struct Window {
    origin: Arc<dyn ReadAt>,
    /// Where the part begins, and its bytes.
    part: Mutex<(u64, Vec<u8>)>,
}

impl Window {
    pub(crate) fn new(origin: Arc<dyn ReadAt>) -> Self {
        Self { origin, part: Mutex::default() }
    }
}

impl ReadAt for Window {
    fn len(&self) -> u64 {
        self.origin.len()
    }

    fn name(&self) -> &str {
        self.origin.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset.saturating_add(into.len() as u64);
        if offset < part.0 || end > part.0 + part.1.len() as u64 {
            let bytes = FETCH_BYTES.min(self.origin.len().saturating_sub(offset));
            part.0 = offset;
            part.1.resize(bytes as usize, 0);
            if end > offset + bytes || self.origin.read_at(offset, &mut part.1).is_err() {
                // Only the bytes that are asked for say what is wrong with them.
                part.1.clear();
                return self.origin.read_at(offset, into);
            }
        }
        let skip = (offset - part.0) as usize;
        into.copy_from_slice(&part.1[skip..skip + into.len()]);
        Ok(())
    }
}

/// A whole small object, named by its content: from the cache of the host, or fetched and kept there.
pub(crate) fn object(client: &Arc<Client>, name: &str, digest: &str) -> Result<Arc<dyn ReadAt>, IoError> {
    let url = client.url_of(name);
    let wrong = |reason: String| IoError::Other { name: url.clone(), offset: None, reason };
    let key: Digest =
        digest.parse().map_err(|reason: penstock_io::DigestParseError| wrong(reason.to_string()))?;
    let behind = cache::of_client(client);
    // A file that is evicted between finding and opening it is fetched like one that was not there.
    if let Some(file) =
        behind.as_ref().and_then(|cache| cache.object(&key)).and_then(|path| LocalFile::open(path).ok())
    {
        return Ok(Arc::new(file));
    }
    let data = client.get(name).map_err(|problem| IoError::Store(Box::new(problem)))?;
    let found = Digest::of(&data);
    if found != key {
        return Err(wrong(format!("expected digest {key}, found {found}")));
    }
    let kept =
        behind.and_then(|cache| cache.keep_object(&key, &data)).and_then(|path| LocalFile::open(path).ok());
    Ok(kept.map_or_else(|| Arc::new(MemoryFile::new(url, data)) as Arc<dyn ReadAt>, |file| Arc::new(file)))
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

    fn changes_unseen(&self) -> bool {
        true
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

impl Sequential {
    /// Reads the next part in place of the one before; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let length = FETCH_BYTES.min(self.source.len() - self.at);
        self.buffer.resize(length as usize, 0);
        self.used = 0;
        self.source
            .read_at(self.at, &mut self.buffer)
            .map_err(|error| io::Error::other(DataError::from(error)))?;
        self.at += length;
        Ok(length > 0)
    }
}

impl Read for Sequential {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() {
            self.advance()?;
        }
        let count = into.len().min(self.buffer.len() - self.used);
        into[..count].copy_from_slice(&self.buffer[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

/// The same with a thread that reads the next parts while one is being used.
struct Ahead {
    parts: Receiver<io::Result<Vec<u8>>>,
    buffer: Vec<u8>,
    used: usize,
}

impl Ahead {
    fn new(source: Arc<dyn ReadAt>) -> Result<Self, IoError> {
        let name = source.name().to_owned();
        let (send, parts) = sync_channel(PARTS_AHEAD);
        let mut reader = Sequential { source, at: 0, buffer: Vec::new(), used: 0 };
        let read = move || loop {
            let part = reader.advance().map(|_| std::mem::take(&mut reader.buffer));
            let is_last = part.as_ref().map_or(true, Vec::is_empty);
            // Nobody listens any more when the scan has ended early.
            if send.send(part).is_err() || is_last {
                return;
            }
        };
        std::thread::Builder::new()
            .name("penstock-scan-ahead".into())
            .spawn(read)
            .map_err(|error| IoError::from_system(&name, None, &error))?;
        Ok(Self { parts, buffer: Vec::new(), used: 0 })
    }
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() {
            // The thread ends after an empty part or an error, so after its end there is nothing more.
            self.buffer = self.parts.recv().unwrap_or(Ok(Vec::new()))?;
            self.used = 0;
        }
        let count = into.len().min(self.buffer.len() - self.used);
        into[..count].copy_from_slice(&self.buffer[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}
