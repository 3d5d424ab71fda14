//! The one place where a Rust error becomes a Python exception.
//!
//! The exceptions are the classes of `penstock/errors`; each is made from keyword arguments, which are its
//! fields, so that a message is written once, in Python, whoever raises it.

use penstock_data::DataError;
use penstock_data::feed::FeedError;
use penstock_events::EventError;
use penstock_io::{IoError, StoreKind, StoreProblem};
use penstock_process::simulate::PlanProblem;
use penstock_service::{ClientError, ServeError};
use penstock_state::StateError;
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

/// Failures to scan files that are being registered: there is nothing yet that they could be a corruption of.
pub(crate) fn from_scan(py: Python<'_>, error: DataError) -> PyErr {
    match error {
        DataError::Truncated { shard, offset } => {
            let reason = format!("it is cut off: it ends inside what begins at byte {offset}");
            raise!(py, "FileUnusable", { path: shard, reason: reason })
        }
        DataError::BadStream { shard, offset, reason } => {
            let reason = format!("it cannot be decompressed at byte {offset}: {reason}");
            raise!(py, "FileUnusable", { path: shard, reason: reason })
        }
        other => from_data(py, other),
    }
}

/// Failures to read shards.
pub(crate) fn from_data(py: Python<'_>, error: DataError) -> PyErr {
    let message = error.to_string();
    match error {
        DataError::Corrupt { shard, offset, expected, found } => {
            let reason = format!("expected xxh3 {expected:016x}, found {found:016x}");
            raise!(py, "CorruptShard", { shard: shard, offset: offset, reason: reason })
        }
        DataError::Delivered { problem, steps } => {
            let made = from_data(py, *problem);
            // Only damage has such a field; what else went wrong says nothing of what came before.
            let named = made.value(py).call_method1("after_steps", (*steps.start(), *steps.end()));
            named.map_or(made, PyErr::from_value)
        }
        DataError::SizeChanged { shard, expected, found } => {
            let reason = format!("the file has {found} bytes, but was registered with {expected}");
            raise!(py, "CorruptShard", { shard: shard, offset: expected.min(found), reason: reason })
        }
        DataError::Truncated { shard, offset } => {
            let reason = "the file ends inside what begins here";
            raise!(py, "CorruptShard", { shard: shard, offset: offset, reason: reason })
        }
        DataError::BadStream { shard, offset, reason } => {
            raise!(py, "CorruptShard", { shard: shard, offset: offset, reason: format!("cannot be decompressed: {reason}") })
        }
        DataError::BadRow { shard, line, offset, reason } => {
            raise!(py, "BadRow", { shard: shard, line: line, offset: offset, reason: reason })
        }
        DataError::RowTooLarge { shard, line, offset, limit } => {
            let reason = format!("it is longer than {limit} bytes");
            raise!(py, "BadRow", { shard: shard, line: line, offset: offset, reason: reason })
        }
        DataError::TooManyBad { shard, limit, line, offset, reason } => {
            let first = format!("row {line} (byte {offset}): {reason}");
            raise!(py, "TooManyBadRows", { shard: shard, limit: limit, last: first })
        }
        DataError::IndexDamaged { reason } => {
            raise!(py, "IndexDamaged", { index: "of this shard", reason: reason })
        }
        DataError::IndexVersion { found, known } => {
            raise!(py, "ManifestNewer", { name: "an index", found: found, known: known })
        }
        DataError::OutOfRange { row, rows, .. } => raise!(py, "RowOutOfRange", { row: row, rows: rows }),
        DataError::Cancelled { shard, .. } => raise!(py, "ScanCancelled", { shard: shard }),
        DataError::EmptyShard { shard } => {
            raise!(py, "FileEmpty", { path: shard, reason: "it has no rows" })
        }
        DataError::NotThisFormat { shard, format, offset, reason } => {
            raise!(py, "FileUnusable", { path: shard, reason: format!("not {format}: at byte {offset}, {reason}") })
        }
        DataError::FrameTooLarge { shard, .. }
        | DataError::NoRanges { shard }
        | DataError::TooMuch { shard, .. } => {
            raise!(py, "FileUnusable", { path: shard, reason: message })
        }
        DataError::IndexWrite { path, reason } => {
            raise!(py, "StoreFailed", { verb: "write", url: path, reason: reason })
        }
        DataError::Io(problem) => from_io(py, problem),
    }
}

/// Failures to read bytes at all.
fn from_io(py: Python<'_>, error: IoError) -> PyErr {
    let reason = error.to_string();
    match error {
        IoError::NotFound { name } => raise!(py, "ObjectMissing", { url: name }),
        IoError::Denied { name } => {
            raise!(py, "StoreDenied", { verb: "read", url: name, reason: "permission denied" })
        }
        IoError::Store(problem) => from_store(py, *problem),
        IoError::Delivered { problem, .. } => from_io(py, *problem),
        IoError::Short { name, .. }
        | IoError::Corrupt { name, .. }
        | IoError::SizeChanged { name, .. }
        | IoError::Beyond { name, .. }
        | IoError::Other { name, .. } => {
            raise!(py, "StoreFailed", { verb: "read", url: name, reason: reason })
        }
    }
}

/// Failures of stores.
pub(crate) fn from_store(py: Python<'_>, problem: StoreProblem) -> PyErr {
    let StoreProblem { kind, verb, url, range, tries, waited_ms, reason } = problem;
    let class = match kind {
        StoreKind::Missing => return raise!(py, "ObjectMissing", { url: url }),
        StoreKind::NoBucket => "BucketMissing",
        StoreKind::Denied => "StoreDenied",
        StoreKind::Throttled => "StoreThrottled",
        StoreKind::TimedOut => "StoreTimedOut",
        StoreKind::Changed => "ObjectChanged",
        StoreKind::Failed => "StoreFailed",
    };
    let range = range.map(|range| (range.start, range.end));
    let fields = PyDict::new(py);
    let filled: PyResult<()> = (|| {
        fields.set_item("verb", verb)?;
        fields.set_item("url", url)?;
        fields.set_item("reason", reason)?;
        fields.set_item("range", range)?;
        fields.set_item("tries", tries)?;
        fields.set_item("waited_s", waited_ms as f64 / 1e3)
    })();
    match filled {
        Ok(()) => make(py, class, &fields),
        Err(problem) => problem,
    }
}

/// Failures to plan or deliver batches.
pub(crate) fn from_feed(py: Python<'_>, error: FeedError) -> PyErr {
    match error {
        FeedError::Data(problem) => from_data(py, problem),
        FeedError::Plan { reason } => raise!(py, "RecipeInvalid", { field: "plan", reason: reason }),
        FeedError::Empty { source_name } => raise!(py, "SourceEmpty", { source: source_name, rows: 0 }),
        FeedError::TableDamaged { table, reason } => {
            raise!(py, "IndexDamaged", { index: table, reason: reason })
        }
        FeedError::TableWrite { path, reason } => {
            raise!(py, "StoreFailed", { verb: "write", url: path, reason: reason })
        }
        FeedError::Wire { reason } => raise!(py, "BatchDamaged", { reason: reason }),
        FeedError::Thread { .. } | FeedError::Unmeasured { .. } | FeedError::Closed => {
            raise!(py, "FeedClosed", { reason: error.to_string() })
        }
    }
}

/// Failures to save or load tensors. Which tensor a piece belongs to is known to the caller, by the piece's number.
pub(crate) fn from_state(py: Python<'_>, error: StateError) -> PyErr {
    let reason = error.to_string();
    match error {
        StateError::Damaged { file, offset, piece, expected, found } => {
            let reason = format!("expected xxh3 {expected:032x}, found {found:032x}");
            raise!(py, "CheckpointDamaged", { file: file, offset: offset, reason: reason, piece: piece })
        }
        StateError::Short { file, bytes, end, piece } => {
            let reason = format!("the file has {bytes} bytes, but a piece ends at byte {end}");
            raise!(py, "CheckpointDamaged", { file: file, offset: bytes, reason: reason, piece: piece })
        }
        StateError::System { verb, path, reason, full } => {
            raise!(py, "StoreFailed", { verb: verb, url: path, reason: reason, full: full })
        }
        StateError::Shape { .. } => raise!(py, "CheckpointDamaged", { file: "the manifest", reason: reason }),
        StateError::Io(problem) => from_io(py, problem),
    }
}

/// A simulation that makes no sense.
pub(crate) fn from_simulation(py: Python<'_>, problem: PlanProblem) -> PyErr {
    let PlanProblem { field, reason } = problem;
    raise!(py, "SimulationInvalid", { field: field, reason: reason })
}

/// Failures to begin to serve.
pub(crate) fn from_serve(py: Python<'_>, error: ServeError) -> PyErr {
    match error {
        ServeError::Start { reason } => raise!(py, "ServiceUnusable", { what: "the server", reason: reason }),
        ServeError::Secure { path, reason } => {
            raise!(py, "ServiceUnusable", { what: path, reason: reason })
        }
    }
}

/// Failures to get anything from a server; what it raised itself is raised again here.
pub(crate) fn from_client(py: Python<'_>, error: ClientError) -> PyErr {
    match error {
        ClientError::Unavailable { servers, tries, waited } => {
            let servers: std::collections::BTreeMap<String, String> = servers.into_iter().collect();
            raise!(py, "ServiceUnavailable", { servers: servers, tries: tries, waited_s: waited.as_secs_f64() })
        }
        ClientError::Refused { server, document } => {
            let revived = py
                .import("penstock.errors.transport")
                .and_then(|module| module.call_method1("from_json", (&document[..], server)));
            revived.map_or_else(|problem| problem, PyErr::from_value)
        }
        ClientError::Closed | ClientError::Thread { .. } => {
            raise!(py, "FeedClosed", { reason: error.to_string() })
        }
    }
}
