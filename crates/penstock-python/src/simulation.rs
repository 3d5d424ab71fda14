//! Jobs on imagined hosts across the border: one plan as JSON in, one JSON document for each seed out.

use crate::error;
use penstock_process::simulate::{SimulationPlan, simulate as live, trace};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Lives a plan through, once for each of its seeds; a JSON list of outcomes.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, plan: &str, threads: usize) -> PyResult<String> {
    let plan: SimulationPlan =
        serde_json::from_str(plan).map_err(|problem| PyValueError::new_err(problem.to_string()))?;
    let outcomes =
        py.detach(|| live(&plan, threads)).map_err(|problem| error::from_simulation(py, problem))?;
    serde_json::to_string(&outcomes).map_err(|problem| PyValueError::new_err(problem.to_string()))
}

/// Lives a plan through with its first seed; JSON of what a person would have seen.
#[pyfunction]
pub(crate) fn simulation_trace(py: Python<'_>, plan: &str) -> PyResult<String> {
    let plan: SimulationPlan =
        serde_json::from_str(plan).map_err(|problem| PyValueError::new_err(problem.to_string()))?;
    let trace = py.detach(|| trace(&plan)).map_err(|problem| error::from_simulation(py, problem))?;
    serde_json::to_string(&trace).map_err(|problem| PyValueError::new_err(problem.to_string()))
}
