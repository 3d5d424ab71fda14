//! What the HTTP layer tells us beside the answer: the status and how long the store asks us to wait.
//!
//! `object_store` turns an answer that is not a success into words and forgets its head. This service stands between it and the
//! real one and leaves a note for the request that is being made by the present task.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::counts::{COUNTS, TIMES};
use crate::listing::sort_out;

/// What the head of the last answer said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// The status; nothing when there was no answer.
    pub(crate) status: Option<u16>,
    /// How long the store asked us to wait.
    pub(crate) retry_after: Option<Duration>,
}

tokio::task_local! {
    static NOTE: RefCell<Note>;
}

/// Runs something that makes requests; its outcome, and the note of the last one.
pub(crate) async fn with_note<T>(doing: impl Future<Output = T>) -> (T, Note) {
    let doing = async {
        let outcome = doing.await;
        (outcome, NOTE.with(|note| *note.borrow()))
    };
    NOTE.scope(RefCell::new(Note::default()), doing).await
}

/// Makes watched clients.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watched(ReqwestConnector::default().connect(options)?)))
    }
}

struct Watched(HttpClient);

impl fmt::Debug for Watched {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str("Watched")
    }
}

impl HttpService for Watched {
    // What `#[async_trait]` would write.
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            COUNTS.requests.add(1);
            let asked = std::time::Instant::now();
            let lists = request.uri().query().is_some_and(|query| query.contains("list-type=2"));
            let answer = self.0.execute(request).await;
            if let Ok(answer) = &answer {
                TIMES.answer.add(asked.elapsed());
                let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
                let note =
                    Note { status: Some(answer.status().as_u16()), retry_after: after.and_then(seconds) };
                // Requests that nobody asked for (tokens of a provider) are made outside of a note too.
                let _ = NOTE.try_with(|place| *place.borrow_mut() = note);
            }
            match answer {
                Ok(answer) if lists && answer.status().is_success() => readable(answer).await,
                answer => answer,
            }
        })
    }
}

/// A page of a listing without the keys that would make `object_store` refuse all of it.
async fn readable(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let bytes = body.bytes().await?;
    let kept = std::str::from_utf8(&bytes).ok().and_then(sort_out);
    Ok(HttpResponse::from_parts(head, kept.map_or_else(|| bytes.into(), Into::into)))
}

/// `Retry-After` in seconds. The form with a date is rare and depends on clocks that agree, so it is not kept.
fn seconds(value: &str) -> Option<Duration> {
    value.trim().parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_seconds_are_kept() {
        assert_eq!(seconds(" 3 "), Some(Duration::from_secs(3)));
        assert_eq!(seconds("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(seconds("-1"), None);
    }
}
