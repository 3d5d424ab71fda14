//! What a server says instead of a batch: a status for programs in between, and an exception for the client.
//!
//! The document names a class of `penstock.errors`, its message and its fields, so that the client raises what a local feed
//! would have raised.

use bytes::Bytes;
use serde_json::{Value, json};

/// An exception on its way to the client, with the HTTP status that goes along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status: 503 passes, everything else stays.
    pub status: u16,
    /// When to ask again.
    pub retry_after_s: Option<u64>,
    /// The exception, as JSON.
    pub document: Bytes,
}

impl Problem {
    /// An exception that a server itself raises.
    pub fn new(status: u16, class: &str, message: &str, fields: Value) -> Self {
        let document = json!({"class": class, "message": message, "fields": fields});
        Self { status, retry_after_s: None, document: document.to_string().into() }
    }

    /// An exception that making a batch has raised, already written down.
    pub fn told(document: Vec<u8>) -> Self {
        Self { status: 422, retry_after_s: None, document: document.into() }
    }

    /// There is too much to do, or it takes longer than the client wants to wait.
    pub fn busy(reason: &str) -> Self {
        let message = format!("the server is busy: {reason}");
        let problem = Self::new(503, "ServiceBusy", &message, json!({"reason": reason}));
        Self { retry_after_s: Some(1), ..problem }
    }

    /// The batch takes longer than the client waits; it should ask again at once, and will find it sooner.
    pub fn unfinished(step: u64) -> Self {
        Self { retry_after_s: None, ..Self::busy(&format!("step {step} is still being made")) }
    }

    /// A request that makes no sense.
    pub fn invalid(status: u16, reason: &str) -> Self {
        let message = format!("the request makes no sense: {reason}");
        Self::new(status, "ServiceRequestInvalid", &message, json!({"reason": reason}))
    }

    /// No token, or a wrong one.
    pub fn denied(reason: &str) -> Self {
        let message = format!("the data service does not let us: {reason}");
        Self::new(401, "ServiceDenied", &message, json!({"reason": reason}))
    }

    /// A request that was meant for somebody else, or that a foreign page has made.
    pub fn refused(reason: &str) -> Self {
        Self { status: 403, ..Self::denied(reason) }
    }

    /// The client wants the batches of another plan.
    pub fn mismatch(wanted: &str, served: &str) -> Self {
        let message = format!("the server serves plan {served}, but plan {wanted} was asked for");
        Self::new(409, "ServiceMismatch", &message, json!({"wanted": wanted, "served": served}))
    }

    /// The client speaks another protocol.
    pub fn incompatible(wanted: &str, spoken: u32) -> Self {
        let reason = format!("the client speaks protocol {wanted}, the server {spoken}");
        let message = format!("client and server do not fit: {reason}");
        Self::new(426, "ServiceIncompatible", &message, json!({"reason": reason}))
    }
}
