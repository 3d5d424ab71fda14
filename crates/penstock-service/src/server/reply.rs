//! Answers: a batch in its sections, a document, or a problem.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use super::Serving;
use crate::CHECK;
use crate::body::Body;
use crate::counts::add;
use crate::problem::Problem;

/// The bytes of an answer, section by section, none copied. While it lives, its bytes count as being sent.
pub(super) struct Sections {
    left: VecDeque<Bytes>,
    left_bytes: usize,
    sending: Option<(Arc<Serving>, usize)>,
}

impl hyper::body::Body for Sections {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.left.pop_front();
        self.left_bytes -= next.as_ref().map_or(0, Bytes::len);
        Poll::Ready(next.map(|section| Ok(Frame::data(section))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes as u64)
    }
}

impl Drop for Sections {
    fn drop(&mut self) {
        if let Some((serving, bytes)) = self.sending.take() {
            serving.counts.sending_bytes.fetch_sub(bytes, Ordering::AcqRel);
            if self.left.is_empty() {
                add(&serving.counts.batches_sent, 1);
                add(&serving.counts.bytes_sent, bytes as u64);
            }
        }
    }
}

pub(super) type Reply = Response<Sections>;

/// Bytes with a status and a kind.
pub(super) fn plain(status: u16, kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
    let bytes = bytes.into();
    let left_bytes = bytes.len();
    let left = if bytes.is_empty() { VecDeque::new() } else { [bytes].into() };
    let mut reply = Response::new(Sections { left, left_bytes, sending: None });
    *reply.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// A document.
pub(super) fn json(bytes: impl Into<Bytes>) -> Reply {
    plain(200, "application/json", bytes)
}

/// A problem, counted by its kind.
pub(super) fn problem(serving: &Serving, found: Problem) -> Reply {
    let count = match found.status {
        503 => Some(&serving.counts.busy),
        401 | 403 => Some(&serving.counts.denied),
        400..=499 if found.status != 422 => Some(&serving.counts.invalid),
        _ => None,
    };
    count.into_iter().for_each(|count| add(count, 1));
    let mut reply = plain(found.status, "application/json", found.document);
    if let Some(seconds) = found.retry_after_s {
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if found.status == 401 {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

/// A batch, or the end of the stream.
pub(super) fn batch(serving: &Arc<Serving>, made: Option<Body>) -> Reply {
    let Some(body) = made else { return plain(204, "application/octet-stream", Bytes::new()) };
    serving.counts.sending_bytes.fetch_add(body.bytes(), Ordering::AcqRel);
    let sections = Sections {
        left: body.sections().iter().filter(|section| !section.is_empty()).cloned().collect(),
        left_bytes: body.bytes(),
        sending: Some((Arc::clone(serving), body.bytes())),
    };
    let mut reply = Response::new(sections);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(check) = body.check() {
        reply.headers_mut().insert(CHECK, check.into());
    }
    reply
}
