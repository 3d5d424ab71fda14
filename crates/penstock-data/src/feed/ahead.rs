//! Reading ahead: several threads make batches, one consumer gets them in order.
//!
//! Because any batch can be made from its number alone, threads simply take the next number; nothing they do can change
//! the order. Finished batches wait in a map until their turn. The distance between the consumer and the furthest thread is
//! bounded, which bounds memory.

use std::collections::{BTreeMap, BTreeSet};
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

    /// Ends the waits of [`MakeBatch::make`], now and later: the feed closes.
    fn stop(&self) {}

    /// Waits until all is there that the batch of `step` needs, at most for `timeout`; whether it is.
    fn wait(&self, _step: u64, _timeout: Duration) -> Result<bool, FeedError> {
        Ok(true)
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

/// Batches that are made faster than this are made by a consumer that would have to wait.
const QUICK_S: f64 = 100e-6;
/// How many waiting times are remembered.
pub const WAITS_MAX: usize = 4096;

/// How long a thread waits for what a step needs before it looks whether the feed is closed.
const PATIENCE: Duration = Duration::from_millis(100);

struct State {
    /// The step that the next free thread takes.
    next_to_make: u64,
    /// Steps before it that somebody has to make again, because an error came of them.
    again: BTreeSet<u64>,
    /// The step that the consumer gets next.
    next_to_give: u64,
    ready: BTreeMap<u64, Result<Option<Batch>, FeedError>>,
    closed: bool,
    /// Whether the consumer sleeps, and how many threads do: waking costs a system call even if nobody is there.
    consumer_sleeps: bool,
    threads_asleep: usize,
    /// How long a batch takes to make, smoothed; nothing before the first.
    make_s: Option<f64>,
    /// Whether a thread has met the end of the stream.
    ended: bool,
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

/// Batches that are made or being made before they are asked for, at most.
const DEPTH_MAX: usize = 64;

/// How far threads may be ahead of the consumer: as far as the memory holds batches of a size. Every thread has a batch to work on
/// and the consumer one that is ready, whatever the memory.
pub fn depth_of(memory_bytes: usize, batch_bytes: usize, threads: usize) -> usize {
    (memory_bytes / batch_bytes.max(1)).clamp(threads.min(DEPTH_MAX - 1) + 1, DEPTH_MAX)
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
            again: BTreeSet::new(),
            next_to_give: step,
            ready: BTreeMap::new(),
            closed: false,
            consumer_sleeps: false,
            threads_asleep: 0,
            make_s: None,
            ended: false,
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
            return self.make_here(begun, timeout);
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
            if let Some(step) = self.shared.quick_step(&mut state) {
                drop(state);
                self.shared.finish(step);
                state = hold(&self.shared);
                continue;
            }
            state.consumer_sleeps = true;
            (state, _) = self.shared.made.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state.consumer_sleeps = false;
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
        self.shared.maker.stop();
        self.shared.room.notify_all();
        self.shared.made.notify_all();
        // Not held while joining: a consumer that asks meanwhile is told at once that the feed is closed.
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A panic while making a batch was already turned into an error; there is nothing more to learn.
            let _ = thread.join();
        }
    }

    /// Counts since opening.
    pub fn waits(&self) -> Waits {
        let state = hold(&self.shared);
        Waits { batches: state.given, ready: state.ready.len(), waits_s: state.waits_s.clone() }
    }

    /// Batches that are made and wait.
    pub fn ready(&self) -> usize {
        hold(&self.shared).ready.len()
    }

    fn make_here(&self, begun: Instant, timeout: Duration) -> Result<Result<Option<Batch>, ()>, FeedError> {
        let state = hold(&self.shared);
        if state.closed {
            return Err(FeedError::Closed);
        }
        let step = state.next_to_give;
        drop(state);
        let result = match self.shared.maker.wait(step, timeout) {
            Ok(true) => self.shared.maker.make(step),
            Ok(false) => return Ok(Err(())),
            Err(error) => Err(error),
        };
        self.give(hold(&self.shared), result, begun).map(Ok)
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
        } else if result.is_err() {
            state.try_again();
        } else {
            // The end stays where it is: asking again gets the same answer.
            let step = state.next_to_give;
            state.ready.insert(step, Ok(None));
        }
        // Threads that wait for room are woken when a quarter of it is free, so that they work for a while before they sleep again.
        let ahead = state.next_to_make.saturating_sub(state.next_to_give);
        let room = ahead <= self.shared.depth - (self.shared.depth / 4).max(1);
        let wake = state.threads_asleep > 0 && (room || !state.again.is_empty());
        drop(state);
        if wake {
            self.shared.room.notify_all();
        }
        result
    }
}

impl State {
    /// The consumer was told of an error. What caused it may pass, and others may have met it too: all their steps are made again, and
    /// the consumer that asks again is at the step where it was.
    fn try_again(&mut self) {
        self.again.insert(self.next_to_give);
        let failed = self.ready.iter().filter(|(_, result)| result.is_err()).map(|(step, _)| *step);
        self.again.extend(failed);
        self.ready.retain(|_, result| result.is_ok());
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
        while !state.closed && !shared.has_work(&state) {
            state.threads_asleep += 1;
            state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.threads_asleep -= 1;
        }
        if state.closed {
            return;
        }
        let step = shared.take(&mut state);
        drop(state);
        if !shared.finish(step) {
            return;
        }
    }
}

impl Shared {
    /// Whether there is a step to make, and room for it.
    fn has_work(&self, state: &State) -> bool {
        !state.again.is_empty() || (!state.ended && state.next_to_make < state.next_to_give + self.depth)
    }

    /// The next step that nobody makes yet.
    fn take(&self, state: &mut State) -> u64 {
        if let Some(step) = state.again.pop_first() {
            return step;
        }
        let step = state.next_to_make;
        state.next_to_make = self.maker.first_from(step + 1);
        step
    }

    /// A step for the consumer to make instead of sleeping: where batches take less time than waking up does, that is all there is to
    /// gain. None where they take long, where there is no room, or where a step has to wait for something itself.
    fn quick_step(&self, state: &mut State) -> Option<u64> {
        let quick = state.make_s.is_some_and(|seconds| seconds < QUICK_S);
        if !quick || !self.has_work(state) || self.maker.wait(state.next_to_make, Duration::ZERO) != Ok(true)
        {
            return None;
        }
        Some(self.take(state))
    }

    /// Makes a step that was taken and puts it where the consumer looks; false when the feed closes.
    fn finish(&self, step: u64) -> bool {
        let begun = Instant::now();
        let Some(result) = make(self, step) else { return false };
        let took = begun.elapsed().as_secs_f64();
        let mut state = hold(self);
        state.make_s = Some(state.make_s.map_or(took, |known| known + (took - known) / 8.0));
        state.ended |= matches!(result, Ok(None));
        if !state.closed {
            state.ready.insert(step, result);
        }
        let wake = state.consumer_sleeps && state.next_to_give == step;
        drop(state);
        if wake {
            self.made.notify_all();
        }
        true
    }
}

/// Makes a batch once all is there that it needs; nothing when the feed closes before. A panic becomes an error of its step,
/// because a thread that just ends would leave the consumer waiting.
fn make(shared: &Shared, step: u64) -> Option<Result<Option<Batch>, FeedError>> {
    loop {
        match shared.maker.wait(step, PATIENCE) {
            Ok(true) => break,
            Ok(false) if hold(shared).closed => return None,
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
    }
    Some(catch_unwind(AssertUnwindSafe(|| shared.maker.make(step))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(FeedError::Thread { reason: format!("it panicked at step {step}: {said}") })
    }))
}

#[cfg(test)]
mod tests;
