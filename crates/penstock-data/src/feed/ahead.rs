//! Reading ahead: several threads make batches, one consumer gets them in order.
//!
//! Because any batch can be made from its number alone, threads simply take the next number; nothing they do can change
//! the order. Finished batches wait in a map until their turn. The distance between the consumer and the furthest thread is
//! bounded, which bounds memory.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::FeedError;
use super::batch::Batch;

/// Makes the batch of a step, or says that the stream has ended before it.
pub trait MakeBatch: Send + Sync {
    /// The first step from `step` on that is delivered; others are left out.
    fn first_from(&self, step: u64) -> u64 {
        step
    }

    /// The batch of `step`, from nothing but its number.
    fn make(&self, step: u64) -> Result<Option<Batch>, FeedError>;
}

/// Counts since opening.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Waits {
    /// Batches delivered.
    pub batches: u64,
    /// Batches made and not yet asked for.
    pub ready: usize,
    /// The consumer's waiting times, newest last, at most [`WAITS_MAX`].
    pub waits_s: Vec<f64>,
}

/// How many waiting times are remembered.
pub const WAITS_MAX: usize = 4096;

struct State {
    /// The step that the next free thread takes.
    next_to_make: u64,
    /// The step that the consumer gets next.
    next_to_give: u64,
    ready: BTreeMap<u64, Result<Option<Batch>, FeedError>>,
    closed: bool,
    waits_s: Vec<f64>,
    given: u64,
}

struct Shared {
    state: Mutex<State>,
    /// A thread may go on: the consumer took a batch, or the feed closes.
    room: Condvar,
    /// The consumer may go on: a batch is ready, or the feed closes.
    made: Condvar,
    maker: Arc<dyn MakeBatch>,
    /// How far threads may be ahead of the consumer.
    depth: u64,
}

/// The consumer's side. Dropping it ends the threads.
pub struct Ahead {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process that has the threads. In the child of a fork they do not exist, and locks may be held by nobody.
    process: u32,
}

impl Ahead {
    /// Starts `threads` threads from `step` on, at most `depth` batches ahead; none means that the consumer's own thread works.
    pub fn start(
        maker: Arc<dyn MakeBatch>,
        step: u64,
        threads: usize,
        depth: usize,
    ) -> Result<Self, FeedError> {
        let step = maker.first_from(step);
        let state = State {
            next_to_make: step,
            next_to_give: step,
            ready: BTreeMap::new(),
            closed: false,
            waits_s: Vec::new(),
            given: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            room: Condvar::new(),
            made: Condvar::new(),
            maker,
            depth: depth.max(1) as u64,
        });
        let process = std::process::id();
        let ahead = Self { shared: Arc::clone(&shared), threads: Mutex::new(Vec::new()), process };
        for number in 0..threads {
            let theirs = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("penstock-feed-{number}"))
                .spawn(move || work(&theirs))
                .map_err(|error| FeedError::Thread { reason: error.to_string() })?;
            ahead.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(ahead)
    }

    /// The next batch in order, or nothing at the end of the stream. Waits for it at most `timeout`; `None` inside `Ok(Err)` is
    /// never returned: a timeout is `Ok(Err(()))`, so that the caller can look for signals and ask again.
    pub fn next(&self, timeout: Duration) -> Result<Result<Option<Batch>, ()>, FeedError> {
        let begun = Instant::now();
        if self.threads.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return self.make_here(begun).map(Ok);
        }
        let mut state = hold(&self.shared);
        let wanted = state.next_to_give;
        loop {
            if state.closed {
                return Err(FeedError::Closed);
            }
            if let Some(result) = state.ready.remove(&wanted) {
                return self.give(state, result, begun).map(Ok);
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(Err(()));
            }
            (state, _) = self.shared.made.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads and forgets what is ready. Later calls of `next` say that the feed is closed. Does nothing in the
    /// child of a fork, where there is no thread to wait for.
    pub fn close(&self) {
        if std::process::id() != self.process {
            return;
        }
        let mut state = hold(&self.shared);
        state.closed = true;
        state.ready.clear();
        drop(state);
        self.shared.room.notify_all();
        self.shared.made.notify_all();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A panic while making a batch was already turned into an error; there is nothing more to learn.
            let _ = thread.join();
        }
    }

    /// Counts since opening.
    pub fn waits(&self) -> Waits {
        let state = hold(&self.shared);
        Waits { batches: state.given, ready: state.ready.len(), waits_s: state.waits_s.clone() }
    }

    fn make_here(&self, begun: Instant) -> Result<Option<Batch>, FeedError> {
        let state = hold(&self.shared);
        if state.closed {
            return Err(FeedError::Closed);
        }
        let step = state.next_to_give;
        drop(state);
        let result = self.shared.maker.make(step);
        self.give(hold(&self.shared), result, begun)
    }

    fn give(
        &self,
        mut state: MutexGuard<'_, State>,
        result: Result<Option<Batch>, FeedError>,
        begun: Instant,
    ) -> Result<Option<Batch>, FeedError> {
        if matches!(result, Ok(Some(_))) {
            state.next_to_give = self.shared.maker.first_from(state.next_to_give + 1);
            state.given += 1;
            if state.waits_s.len() == WAITS_MAX {
                state.waits_s.drain(..WAITS_MAX / 2);
            }
            state.waits_s.push(begun.elapsed().as_secs_f64());
        } else {
            // The end and errors stay where they are: asking again gets the same answer.
            let step = state.next_to_give;
            state.ready.insert(step, result.clone_end());
        }
        drop(state);
        self.shared.room.notify_all();
        result
    }
}

/// What can be answered twice: the end of the stream, and errors. A batch cannot, and never needs to be.
trait CloneEnd {
    fn clone_end(&self) -> Result<Option<Batch>, FeedError>;
}

impl CloneEnd for Result<Option<Batch>, FeedError> {
    fn clone_end(&self) -> Result<Option<Batch>, FeedError> {
        match self {
            Ok(_) => Ok(None),
            Err(error) => Err(error.clone()),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.close();
    }
}

fn hold(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(shared: &Shared) {
    loop {
        let mut state = hold(shared);
        while !state.closed && state.next_to_make >= state.next_to_give + shared.depth {
            state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return;
        }
        let step = state.next_to_make;
        state.next_to_make = shared.maker.first_from(step + 1);
        drop(state);
        let result = make(shared, step);
        let last = !matches!(result, Ok(Some(_)));
        let mut state = hold(shared);
        if !state.closed {
            state.ready.insert(step, result);
        }
        drop(state);
        shared.made.notify_all();
        if last {
            return;
        }
    }
}

/// Makes a batch; a panic becomes an error of its step, because a thread that just ends would leave the consumer waiting.
fn make(shared: &Shared, step: u64) -> Result<Option<Batch>, FeedError> {
    catch_unwind(AssertUnwindSafe(|| shared.maker.make(step))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(FeedError::Thread { reason: format!("it panicked at step {step}: {said}") })
    })
}
