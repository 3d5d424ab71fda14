//! What an operator should hear once: told to whoever listens in this process, usually the recorder of events.

use std::sync::OnceLock;

/// Something that went wrong without anybody getting wrong bytes for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `cache.full`, `cache.unusable`, `cache.rotten`, …
    pub kind: &'static str,
    /// Which file or directory.
    pub place: String,
    /// What happened, in words.
    pub reason: String,
}

static LISTENER: OnceLock<fn(&Notice)> = OnceLock::new();

/// Tells notices to `listener` from now on; the first one given stays.
pub fn listen(listener: fn(&Notice)) {
    let _ = LISTENER.set(listener);
}

pub(crate) fn tell(kind: &'static str, place: impl ToString, reason: impl ToString) {
    if let Some(listener) = LISTENER.get() {
        listener(&Notice { kind, place: place.to_string(), reason: reason.to_string() });
    }
}
