//! Digests of records across the border: bytes come in, a number goes out.

use penstock_data::feed::digest_rows as digest;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// The sum of the digests of rows, each given as the bytes that stand for its values; the first is at `position`.
#[pyfunction]
pub(crate) fn digest_rows(py: Python<'_>, position: u64, rows: Vec<PyBackedBytes>) -> u128 {
    py.detach(|| digest(position, rows.iter().map(|row| &**row)))
}
