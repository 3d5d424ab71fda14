//! The cache of the host across the border: which one this process uses, and what people do to it.

use penstock_io::IoError;
use penstock_store::cache::{Entry, Notice, Options, Share, choose, chosen_for, disk_of, listen};
use penstock_store::{HostCache, open_whole};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::store::StoreClient;
use crate::{error, events};

fn record(notice: &Notice) {
    events::record_point(notice.kind, &[("place", &notice.place), ("reason", &notice.reason)]);
}

/// A cache of this host, in a directory.
#[pyclass(module = "penstock._rust", name = "HostCache", frozen)]
pub(crate) struct PyHostCache(Arc<HostCache>);

#[pymethods]
impl PyHostCache {
    #[new]
    #[pyo3(signature = (root, *, limit, reserve_bytes, explicit, patience_s, pause_s))]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        limit: &str,
        reserve_bytes: u64,
        explicit: bool,
        patience_s: f64,
        pause_s: f64,
    ) -> PyResult<Self> {
        listen(record);
        let share = Share::parse(limit).ok_or_else(|| {
            PyValueError::new_err(format!("expected a size such as 50G, 800M or 10%, got {limit:?}"))
        })?;
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let options = Options {
            limit_bytes: share.bytes(&root),
            reserve_bytes,
            is_explicit: explicit,
            patience: seconds(patience_s),
            pause: seconds(pause_s),
            ..Options::new(root, 0)
        };
        let opened = py.detach(|| HostCache::open(options));
        opened.map(Self).map_err(|unusable| PyOSError::new_err(unusable.reason))
    }

    /// The directory.
    #[getter]
    fn root(&self) -> PathBuf {
        self.0.root().to_path_buf()
    }

    /// Bytes that it may hold.
    #[getter]
    fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes()
    }

    /// Bytes, pieces and objects that are there; all files are looked at.
    fn show(&self, py: Python<'_>) -> (u64, u64, u64) {
        let shown = py.detach(|| self.0.show());
        (shown.bytes, shown.pieces, shown.objects)
    }

    /// What all processes of the host have counted.
    fn ledger(&self) -> Vec<(&'static str, u64)> {
        let entries = [
            ("bytes", Entry::Bytes),
            ("files", Entry::Files),
            ("hits", Entry::Hits),
            ("misses", Entry::Misses),
            ("evicted", Entry::Evicted),
            ("rotten", Entry::Rotten),
            ("skipped", Entry::Skipped),
            ("fetched_bytes", Entry::Fetched),
        ];
        entries.into_iter().map(|(name, entry)| (name, self.0.ledger(entry))).collect()
    }

    /// Reads everything and drops what is rotten: files and bytes that were read, and the files that were dropped.
    fn verify(&self, py: Python<'_>, progress: Py<PyAny>) -> PyResult<(u64, u64, Vec<PathBuf>)> {
        let mut raised = None;
        let mut tell = |bytes: u64| {
            let answer = Python::attach(|py| progress.bind(py).call1((bytes,)).map(drop));
            raised = answer.err();
            raised.is_none()
        };
        let verified = py.detach(|| self.0.verify(&mut tell));
        raised.map_or(Ok((verified.files, verified.bytes, verified.rotten)), Err)
    }

    /// Removes what was not used for longest until so many bytes are left; the bytes that went, or nothing if another process is at it.
    fn trim(&self, py: Python<'_>, bytes: u64) -> Option<u64> {
        py.detach(|| self.0.trim(bytes))
    }

    /// Removes everything; the bytes that went.
    fn clear(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.clear())
    }
}

/// Files opened from now on use this cache, or none.
#[pyfunction]
pub(crate) fn use_cache(cache: Option<&Bound<'_, PyHostCache>>) {
    choose(cache.map(|cache| Arc::clone(&cache.get().0)));
}

/// A small object named by its content, through the cache.
#[pyfunction]
pub(crate) fn read_object<'py>(
    py: Python<'py>,
    client: &Bound<'py, StoreClient>,
    name: &str,
    digest: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let client = Arc::clone(&client.get().client);
    let read = || {
        let file = open_whole(&client, chosen_for(&client).as_deref(), name, digest)?;
        let mut data = vec![0; file.len() as usize];
        file.read_at(0, &mut data)?;
        Ok(data)
    };
    let data = py.detach(read).map_err(|problem: IoError| error::from_data(py, problem.into()))?;
    Ok(PyBytes::new(py, &data))
}

/// Bytes of the disk that holds a directory, and how many are free.
#[pyfunction]
pub(crate) fn disk_room(place: PathBuf) -> Option<(u64, u64)> {
    disk_of(&place)
}

/// A size as people write it, in bytes on the disk of a directory; nothing if it is none.
#[pyfunction]
pub(crate) fn parse_size(text: &str, place: PathBuf) -> Option<u64> {
    Share::parse(text).map(|share| share.bytes(&place))
}
