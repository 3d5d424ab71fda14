//! Reading across the border: rows of one shard by number, bytes of one file by place, everything checked.

use crate::error;
use crate::source::{Raised, Source};
use crate::store::StoreClient;
use penstock_data::{DataError, Index, Shard};
use penstock_io::{
    DamageKind, Digest, IoError, ReadAt, ReaderStep, Window, look_again as look, verify_blocks,
};
use penstock_store::Client;
use penstock_store::cache::chosen_for;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// An index as Python passes it: its bytes, an object of a store (client and name), or the file that holds it.
#[derive(FromPyObject)]
pub(crate) enum IndexSource {
    Bytes(Vec<u8>),
    StoreObject(Py<StoreClient>, String),
    File(PathBuf),
}

impl IndexSource {
    /// Opens the index; one that is far comes through the cache of the host.
    pub(crate) fn open(&self, digest: &str) -> Result<Index, DataError> {
        let expected: Digest = digest.parse().map_err(|reason: penstock_io::DigestParseError| {
            DataError::IndexDamaged { reason: reason.to_string() }
        })?;
        match self {
            IndexSource::Bytes(bytes) => Index::from_bytes(bytes.clone(), Some(expected)),
            IndexSource::File(path) => Index::open_path(path, Some(expected)),
            IndexSource::StoreObject(client, name) => far_index(&client.get().client, name, expected),
        }
    }
}

/// What the cache has is mapped; what is not there, or turns out to be another, is fetched.
fn far_index(client: &Arc<Client>, name: &str, expected: Digest) -> Result<Index, DataError> {
    let behind = chosen_for(client);
    if let Some(path) = behind.as_ref().and_then(|cache| cache.object(&expected)) {
        match Index::open_path(&path, Some(expected)) {
            Ok(index) => return Ok(index),
            Err(DataError::IndexDamaged { .. }) => {
                behind.iter().for_each(|cache| cache.drop_object(&expected))
            }
            // Evicted in this very moment.
            Err(_) => {}
        }
    }
    let data = client.get(name).map_err(|problem| DataError::Io(IoError::Store(Box::new(problem))))?;
    if let Some(cache) = behind {
        cache.keep_object(&expected, &data);
    }
    Index::from_bytes(data, Some(expected))
}

/// One shard, open for reading.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct ShardFile {
    shard: Shard,
    /// Where an exception of a Python source waits.
    raised: Raised,
}

#[pymethods]
impl ShardFile {
    #[new]
    fn new(py: Python<'_>, source: Source, index: IndexSource, digest: &str) -> PyResult<Self> {
        let raised = Raised::default();
        let opened = py.detach(|| {
            let index = Arc::new(index.open(digest)?);
            Shard::open(source.open_indexed(&raised, &index)?, index)
        });
        match opened {
            Ok(shard) => Ok(ShardFile { shard, raised }),
            Err(problem) => Err(raised.take().unwrap_or_else(|| error::from_data(py, problem))),
        }
    }

    /// How many rows it has.
    #[getter]
    fn rows(&self) -> u64 {
        self.shard.index().rows()
    }

    /// What the index says about the shard beyond its rows, as JSON.
    #[getter]
    fn document(&self) -> PyResult<String> {
        serde_json::to_string(self.shard.index().document())
            .map_err(|reason| pyo3::exceptions::PyValueError::new_err(reason.to_string()))
    }

    /// The key of a row, where rows have keys.
    fn key(&self, row: u64) -> Option<String> {
        self.shard.index().name(row).map(str::to_owned)
    }

    /// First byte and length of a row.
    fn span(&self, row: u64) -> Option<(u64, u64)> {
        self.shard.index().row(row).map(|span| (span.offset, span.length))
    }

    /// The bytes of the given rows, one after another, and where each ends (u64, as bytes).
    fn gather<'py>(
        &self,
        py: Python<'py>,
        rows: PyBuffer<u64>,
        threads: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let rows = rows.to_vec(py)?;
        let gathered =
            py.detach(|| self.shard.gather(&rows, threads)).map_err(|problem| self.raise(py, problem))?;
        let ends = PyBytes::new_with(py, gathered.ends.len() * 8, |into| {
            for (place, end) in into.chunks_exact_mut(8).zip(&gathered.ends) {
                place.copy_from_slice(&end.to_le_bytes());
            }
            Ok(())
        })?;
        Ok((PyBytes::new(py, &gathered.bytes), ends))
    }

    /// Bytes of the file itself, checked.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        if length as u64 > self.shard.index().document().bytes {
            // Never that many: the error comes before the memory.
            self.shard.read_range(offset, length).map_err(|problem| self.raise(py, problem))?;
        }
        PyBytes::new_with(py, length, |into| {
            py.detach(|| self.shard.read_range_into(offset, into)).map_err(|problem| self.raise(py, problem))
        })
    }
}

impl ShardFile {
    fn raise(&self, py: Python<'_>, problem: DataError) -> PyErr {
        self.raised.take().unwrap_or_else(|| error::from_data(py, problem))
    }
}

/// Every stretch of a file that is not as its index says: first byte, length, in which way.
#[pyfunction]
pub(crate) fn find_damage(
    py: Python<'_>,
    source: Source,
    index: IndexSource,
    digest: &str,
) -> PyResult<Vec<(u64, u64, String)>> {
    let raised = Raised::default();
    let outcome = py.detach(|| {
        let index = index.open(digest)?;
        let file: Arc<dyn ReadAt> = match &source {
            Source::StoreObject { .. } => Arc::new(Window::new(source.open(&raised)?)),
            _ => source.open(&raised)?,
        };
        Ok(verify_blocks(&*file, &index, 0..u64::MAX, &mut |_| true))
    });
    let damages =
        outcome.map_err(|problem| raised.take().unwrap_or_else(|| error::from_data(py, problem)))?;
    if let Some(problem) = raised.take() {
        return Err(problem);
    }
    Ok(damages.into_iter().map(|damage| (damage.offset, damage.bytes, describe(damage.kind))).collect())
}

fn describe(kind: DamageKind) -> String {
    match kind {
        DamageKind::Changed => "the bytes are not those that were registered".into(),
        DamageKind::Missing => "the file ends here, but was registered with more".into(),
        DamageKind::Extra => "the file goes on past its registered end".into(),
        DamageKind::Unreadable(reason) => format!("cannot be read: {reason}"),
    }
}

/// Says which step of a feed the present thread reads for from now on; None for none.
#[pyfunction]
pub(crate) fn read_for_step(step: Option<u64>) {
    ReaderStep::set(step);
}

/// Lets the next read of every file look first whether it has changed.
#[pyfunction]
pub(crate) fn look_again() {
    look();
}

/// The members of one sample of an archive: extension, first byte, end.
#[pyfunction]
pub(crate) fn archive_members(
    py: Python<'_>,
    shard: &str,
    row: &[u8],
) -> PyResult<Vec<(String, usize, usize)>> {
    let members = penstock_data::members(shard, row).map_err(|problem| error::from_data(py, problem))?;
    Ok(members.into_iter().map(|member| (member.extension, member.start, member.end)).collect())
}
