//! Eras across the border: the order in which the slices of a version are measured and read.

use crate::plan::digest_of;
use penstock_data::plan::slice_order as order_of;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The slices of a version in the order in which eras take them (u64, as bytes): fixed for the version, whatever the seed.
#[pyfunction]
pub(crate) fn slice_order<'py>(
    py: Python<'py>,
    version: &str,
    slices: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes: Vec<u8> =
        order_of(&digest_of(version)?, slices as u64).iter().flat_map(u64::to_le_bytes).collect();
    Ok(PyBytes::new(py, &bytes))
}
