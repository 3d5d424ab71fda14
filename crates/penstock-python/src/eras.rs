//! Eras across the border: the order in which the slices of a version are measured and read.

use penstock_data::plan::{Key, Permutation};
use penstock_io::Digest;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The slices of a version in the order in which eras take them (u64, as bytes): fixed for the version, whatever the seed.
#[pyfunction]
pub(crate) fn slice_order<'py>(
    py: Python<'py>,
    version: &str,
    slices: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let version: Digest = version
        .parse()
        .map_err(|reason: penstock_io::DigestParseError| PyValueError::new_err(reason.to_string()))?;
    let order = Permutation::new(&Key::of("slices", &[(&version).into()]), slices as u64);
    let bytes: Vec<u8> = order.iter().flat_map(u64::to_le_bytes).collect();
    Ok(PyBytes::new(py, &bytes))
}
