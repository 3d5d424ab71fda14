//! Batches as bodies and back: tokens are borrowed on the way out and stay where they arrived on the way in.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use penstock_data::feed::{Batch, Memory, wire};

use crate::body::Body;
use crate::client::{Answer, Buffer, Turn};
use crate::lane::Lane;

/// The tokens, or the mask, of a batch that lives as long as they are being sent.
struct Borrowed {
    batch: Arc<Batch>,
    mask: bool,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        if self.mask { self.batch.mask().unwrap_or_default() } else { self.batch.tokens() }
    }
}

/// A batch of tokens as a server sends it.
pub fn body_of(batch: Batch) -> Body {
    let batch = Arc::new(batch);
    let parts = wire::parts(&batch);
    let [header, _, gap, _, last_gap, _] = parts.slices();
    let [header, gap, last_gap] = [header, gap, last_gap].map(Bytes::copy_from_slice);
    let borrowed = |mask| Bytes::from_owner(Borrowed { batch: Arc::clone(&batch), mask });
    Body::hashed(vec![header, borrowed(false), gap, borrowed(true), last_gap, Bytes::from(parts.origins)])
}

/// What comes from a server.
pub enum Fetched {
    /// A batch of tokens, checked.
    Tokens(Batch),
    /// Something that somebody else reads: its bytes, checked.
    Finished(Buffer),
}

/// The batches of one lane, as requests and answers.
pub struct BatchesOf {
    /// Which lane.
    pub lane: Lane,
    /// What the plan is called; a server of another one refuses.
    pub plan: String,
    /// Steps that are left out, in order and apart from each other.
    pub skips: Vec<Range<u64>>,
    /// Whether batches are finished by somebody else, so that their bytes are no tokens.
    pub finished: bool,
}

impl Turn for BatchesOf {
    type Made = Fetched;

    fn first_from(&self, step: u64) -> u64 {
        self.skips.iter().find(|range| range.contains(&step)).map_or(step, |range| range.end)
    }

    fn path(&self, step: u64) -> String {
        let Lane { number, of } = self.lane;
        format!("/v1/batch?lane={number}&of={of}&step={step}&plan={}", self.plan)
    }

    fn turn(&self, step: u64, answer: Answer) -> Result<Option<(Fetched, usize)>, String> {
        if answer.status == 204 {
            return Ok(None);
        }
        let bytes = answer.body.as_ref().len();
        if self.finished {
            return Ok(Some((Fetched::Finished(answer.body), bytes)));
        }
        let memory: Memory = Arc::new(answer.body);
        let batch = wire::read(memory).map_err(|problem| problem.to_string())?;
        if batch.step != step {
            return Err(format!("it is step {} instead of {step}", batch.step));
        }
        Ok(Some((Fetched::Tokens(batch), bytes)))
    }
}
