//! A fetch that is under way, and those who wait for it.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use penstock_io::IoError;

use super::resident::Resident;

/// What became of one piece: it is here, it was delivered to somebody and not kept, or it could not be had.
pub(crate) type Outcome = Result<Option<Arc<Resident>>, IoError>;

/// One fetch of neighbouring pieces.
pub(crate) struct Flight {
    /// Which pieces.
    pub(crate) pieces: Range<u64>,
    state: Mutex<State>,
    landed: Condvar,
}

enum State {
    /// Nobody has begun yet; whoever needs it may.
    Queued,
    Flying,
    Landed(Vec<Outcome>),
}

impl Flight {
    /// A fetch that waits for a thread, or one that its maker begins at once.
    pub(crate) fn new(pieces: Range<u64>, queued: bool) -> Arc<Self> {
        let state = Mutex::new(if queued { State::Queued } else { State::Flying });
        Arc::new(Self { pieces, state, landed: Condvar::new() })
    }

    /// Whether the caller is the one who has to fetch now.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = matches!(*state, State::Queued);
        if ours {
            *state = State::Flying;
        }
        ours
    }

    /// Tells all who wait; a piece without an outcome was not fetched.
    pub(crate) fn land(&self, outcomes: Vec<Outcome>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Landed(outcomes);
        self.landed.notify_all();
    }

    /// What became of a piece; nothing if that is not known within `limit`.
    pub(crate) fn wait(&self, piece: u64, limit: Duration) -> Option<Outcome> {
        let end = Instant::now() + limit;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let State::Landed(outcomes) = &*state {
                let outcome = outcomes.get((piece - self.pieces.start) as usize).cloned();
                return Some(outcome.unwrap_or(Ok(None)));
            }
            let left = end.checked_duration_since(Instant::now())?;
            state = self.landed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
