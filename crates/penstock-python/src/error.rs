//! The one place where a Rust error becomes a Python exception.
//!
//! The exceptions are the classes of `penstock/errors.py`; each is made from keyword arguments, which are its
//! fields, so that a message is written once, in Python, whoever raises it.

use penstock_events::EventError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Builds `penstock.errors.<class>(**fields)`.
fn make(py: Python<'_>, class: &str, fields: &Bound<'_, PyDict>) -> PyErr {
    let made = py
        .import("penstock.errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| class.call((), Some(fields)));
    match made {
        Ok(instance) => PyErr::from_value(instance),
        Err(problem) => problem,
    }
}

macro_rules! raise {
    ($py:expr, $class:literal, { $($name:ident : $value:expr),* $(,)? }) => {{
        let fields = PyDict::new($py);
        let filled: PyResult<()> = (|| { $(fields.set_item(stringify!($name), $value)?;)* Ok(()) })();
        match filled { Ok(()) => make($py, $class, &fields), Err(problem) => problem }
    }};
}

/// Failures of recordings.
pub(crate) fn from_events(py: Python<'_>, error: EventError) -> PyErr {
    match error {
        EventError::Io { verb, path, reason } => {
            raise!(py, "EventFileUnusable", { verb: verb, path: path, reason: reason.to_string() })
        }
        EventError::NotEvents { path, reason } => {
            raise!(py, "NotAnEventFile", { path: path, reason: reason })
        }
        EventError::Version { path, found, known } => {
            raise!(py, "EventFormatUnknown", { path: path, found: found, known: known })
        }
    }
}
