//! What one failed try means: in which way it failed, whether another try may help, and the store's words.

use std::error::Error as _;
use std::time::Duration;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use penstock_io::StoreKind;

use crate::listing::{element, unescaped};
use crate::watched::Note;

/// Longer answers of a store are cut.
const WORDS_MAX: usize = 300;
/// How stores say that there is no such bucket or container.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// One failed try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: StoreKind,
    /// Whether another try may go better.
    pub(crate) again: bool,
    /// Whether the store refused because the object exists.
    pub(crate) exists: bool,
    /// Whether the store may have done what was asked and we did not hear of it.
    pub(crate) unsure: bool,
    /// How long the store asked us to wait.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reason: String,
}

impl Trouble {
    /// One that another try may get past.
    pub(crate) fn passing(kind: StoreKind, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { kind, again: true, exists: false, unsure: true, retry_after: None, reason }
    }

    /// One that stays.
    pub(crate) fn lasting(kind: StoreKind, reason: impl Into<String>) -> Self {
        Self { again: false, unsure: false, ..Self::passing(kind, reason) }
    }
}

/// The meaning of an error, given what the head of the last answer said.
pub(crate) fn judge(error: &Error, note: Note) -> Trouble {
    let words = words(error);
    if NO_BUCKET.iter().any(|code| words.contains(code)) {
        return Trouble::lasting(StoreKind::NoBucket, words);
    }
    match error {
        Error::NotFound { .. } => Trouble::lasting(StoreKind::Missing, words),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            Trouble::lasting(StoreKind::Denied, words)
        }
        // S3 says so while another conditional write of the same name is being decided: nothing was written, ask again.
        Error::AlreadyExists { .. } if words.contains("ConditionalRequestConflict") => {
            Trouble { unsure: false, ..Trouble::passing(StoreKind::Failed, words) }
        }
        Error::AlreadyExists { .. } => Trouble { exists: true, ..Trouble::lasting(StoreKind::Failed, words) },
        Error::Precondition { .. } | Error::NotModified { .. } => Trouble::lasting(StoreKind::Changed, words),
        Error::Generic { .. } | Error::JoinError { .. } => generic(error, note, words),
        _ => Trouble::lasting(StoreKind::Failed, words),
    }
}

fn generic(error: &Error, note: Note, words: String) -> Trouble {
    let retry_after = note.retry_after;
    if let Some(transport) = transport(error) {
        let kind = match transport.kind() {
            HttpErrorKind::Timeout => StoreKind::TimedOut,
            _ => StoreKind::Failed,
        };
        let unsure = transport.kind() != HttpErrorKind::Connect;
        return Trouble { unsure, ..Trouble::passing(kind, words) };
    }
    match note.status {
        Some(429 | 503) => {
            Trouble { unsure: false, retry_after, ..Trouble::passing(StoreKind::Throttled, words) }
        }
        Some(408) => Trouble::passing(StoreKind::TimedOut, words),
        // What a server cannot do, such as listing, it cannot do the next time either.
        Some(501) => Trouble::lasting(StoreKind::Failed, words),
        Some(500..) => Trouble { retry_after, ..Trouble::passing(StoreKind::Failed, words) },
        // S3 says 400 of credentials that have run out.
        Some(400) if words.contains("ExpiredToken") || words.contains("InvalidToken") => {
            Trouble::lasting(StoreKind::Denied, words)
        }
        // An answer of 200 whose text is an error, which S3 may give after it has begun to answer.
        Some(200..=299) if words.contains("SlowDown") => Trouble::passing(StoreKind::Throttled, words),
        Some(200..=299) if words.contains("InternalError") => Trouble::passing(StoreKind::Failed, words),
        _ => Trouble::lasting(StoreKind::Failed, words),
    }
}

/// What went wrong below HTTP, if that is what it was.
fn transport(error: &Error) -> Option<&HttpError> {
    let mut cause = error.source();
    // A chain of causes has an end; ours are a handful long.
    while let Some(reason) = cause {
        if let Some(http) = reason.downcast_ref::<HttpError>() {
            return Some(http);
        }
        cause = reason.source();
    }
    None
}

/// A sentence of what the error says, without the layers around it.
fn words(error: &Error) -> String {
    let full = error.to_string();
    // "Error performing GET http://… in 12ms - Server returned …": the object and the time are said elsewhere.
    let said = full.rsplit_once(" - ").map_or(full.as_str(), |(_, said)| said);
    // "Generic S3 error: HTTP error: …", "Server returned non-2xx status code: 503 …": who said it is in the URL.
    let said = said
        .strip_prefix("Generic ")
        .and_then(|rest| rest.split_once(" error: "))
        .map_or(said, |(_, said)| said);
    let said = said.strip_prefix("Server returned non-2xx status code: ").unwrap_or(said);
    let said = said.strip_prefix("HTTP error: ").unwrap_or(said);
    let mut root = error.source();
    while let Some(deeper) = root.and_then(|cause| cause.source()) {
        root = Some(deeper);
    }
    let root = root.map(ToString::to_string).filter(|root| !full.contains(root.as_str()));
    let whole = root.map_or_else(|| said.to_owned(), |root| format!("{said}: {root}"));
    let whole = said_in_xml(&whole).unwrap_or(whole);
    let line: String = whole.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Code and message of an answer in XML.
fn said_in_xml(text: &str) -> Option<String> {
    let code = element(text, "Code")?;
    Some(match element(text, "Message") {
        Some(message) => format!("{code}: {}", unescaped(&message)),
        None => code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    fn judged(text: &str, status: u16) -> (StoreKind, bool) {
        let trouble = judge(&generic(text), Note { status: Some(status), retry_after: None });
        (trouble.kind, trouble.again)
    }

    #[test]
    fn a_status_decides_kind_and_further_tries() {
        assert_eq!(judged("busy", 503), (StoreKind::Throttled, true));
        assert_eq!(judged("busy", 429), (StoreKind::Throttled, true));
        assert_eq!(judged("oops", 500), (StoreKind::Failed, true));
        assert_eq!(judged("oops", 504), (StoreKind::Failed, true));
        assert_eq!(judged("never", 501), (StoreKind::Failed, false));
        assert_eq!(judged("late", 408), (StoreKind::TimedOut, true));
        assert_eq!(judged("bad", 400), (StoreKind::Failed, false));
        assert_eq!(judged("<Code>ExpiredToken</Code>", 400), (StoreKind::Denied, false));
        assert_eq!(judged("<Code>SlowDown</Code>", 200), (StoreKind::Throttled, true));
        assert_eq!(judged("unreadable", 200), (StoreKind::Failed, false));
    }

    #[test]
    fn what_below_http_went_wrong_is_tried_again_whatever_the_head_said() {
        for (kind, expected) in
            [(HttpErrorKind::Timeout, StoreKind::TimedOut), (HttpErrorKind::Decode, StoreKind::Failed)]
        {
            let broken = HttpError::new(kind, std::io::Error::other("broken"));
            let error = Error::Generic { store: "HTTP", source: Box::new(broken) };
            let trouble = judge(&error, Note { status: Some(206), retry_after: None });
            assert_eq!((trouble.kind, trouble.again, trouble.unsure), (expected, true, true));
            assert!(trouble.reason.ends_with("broken"), "{}", trouble.reason);
        }
    }

    #[test]
    fn an_answer_in_xml_is_told_by_its_code_and_message() {
        let xml = "404 Not Found: <?xml version=\"1.0\"?> <Error><Code>NoSuchBucket</Code><Message>It does not \
                   exist &amp; never did</Message><BucketName>b</BucketName></Error>";
        let trouble = judge(&generic(xml), Note { status: Some(404), retry_after: None });
        assert_eq!(trouble.kind, StoreKind::NoBucket);
        assert_eq!(trouble.reason, "NoSuchBucket: It does not exist & never did");
    }

    #[test]
    fn words_are_one_line_of_bounded_length() {
        let long = judge(&generic(&"many\n words ".repeat(500)), Note::default()).reason;
        assert!(long.chars().count() <= WORDS_MAX + 1 && !long.contains('\n'));
    }
}
