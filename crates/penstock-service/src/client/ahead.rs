//! Reading ahead over the network: a few threads, each with its connection, fetch the next steps; the consumer gets them in order.
//!
//! How far they may be ahead is bounded by the bytes that wait. Nothing that threads do can change the order, because a step is
//! asked for by its number.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::asking::{Answer, Client, Line};
use crate::error::ClientError;

/// What turns requests into steps and answers into batches.
pub trait Turn: Send + Sync + 'static {
    /// A batch.
    type Made: Send + 'static;

    /// The first step from `step` on that is delivered.
    fn first_from(&self, step: u64) -> u64;

    /// What to ask a server for.
    fn path(&self, step: u64) -> String;

    /// The batch of an answer and its bytes, nothing at the end of the stream; or why it was damaged on the way.
    fn turn(&self, step: u64, answer: Answer) -> Result<Option<(Self::Made, usize)>, String>;
}

/// Counts since opening.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Waits {
    /// Batches delivered.
    pub batches: u64,
    /// Batches that are there and not yet asked for.
    pub ready: usize,
    /// The consumer's waiting times, newest last, at most some thousands.
    pub waits_s: Vec<f64>,
}

const WAITS_MAX: usize = 4096;
/// Steps that are fetched or wait, at most.
const DEPTH_MAX: u64 = 64;

type Outcome<M> = Result<Option<(M, usize)>, ClientError>;

struct State<M> {
    next_to_take: u64,
    next_to_give: u64,
    /// Taken and not handed out.
    taken: u64,
    ready: BTreeMap<u64, Outcome<M>>,
    ready_bytes: usize,
    /// Nothing before the first batch; until then nobody begins a second one.
    largest_bytes: usize,
    over: bool,
    closed: bool,
    given: u64,
    waits_s: Vec<f64>,
}

struct Shared<T: Turn> {
    state: Mutex<State<T::Made>>,
    room: Condvar,
    made: Condvar,
    client: Arc<Client>,
    turn: T,
    memory_bytes: usize,
}

/// The consumer's side. Dropping it ends the threads.
pub struct Ahead<T: Turn> {
    shared: Arc<Shared<T>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
}

impl<T: Turn> Ahead<T> {
    /// Starts threads that fetch from `step` on.
    pub fn start(
        client: Arc<Client>,
        turn: T,
        step: u64,
        threads: usize,
        memory_bytes: usize,
    ) -> Result<Self, ClientError> {
        let step = turn.first_from(step);
        let state = State {
            next_to_take: step,
            next_to_give: step,
            taken: 0,
            ready: BTreeMap::new(),
            ready_bytes: 0,
            largest_bytes: 0,
            over: false,
            closed: false,
            given: 0,
            waits_s: Vec::new(),
        };
        let (room, made) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), room, made, client, turn, memory_bytes });
        let process = std::process::id();
        let ahead = Self { shared: Arc::clone(&shared), threads: Mutex::default(), process };
        for number in 0..threads.max(1) {
            let theirs = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("penstock-fetch-{number}"))
                .spawn(move || theirs.work())
                .map_err(|problem| ClientError::Thread { reason: problem.to_string() })?;
            ahead.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(ahead)
    }

    /// The next batch, nothing at the end of the stream; `Ok(Err(()))` when it is not there within `timeout`. The end and errors
    /// stay: asking again gets the same answer.
    pub fn next(&self, timeout: Duration) -> Result<Result<Option<T::Made>, ()>, ClientError> {
        let begun = Instant::now();
        let mut state = self.shared.hold();
        loop {
            if state.closed {
                return Err(ClientError::Closed);
            }
            let wanted = state.next_to_give;
            match state.ready.get(&wanted) {
                Some(Ok(Some(_))) => break,
                Some(Ok(None)) => return Ok(Ok(None)),
                Some(Err(problem)) => return Err(problem.clone()),
                None => {}
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(Err(()));
            }
            state = self.shared.made.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let wanted = state.next_to_give;
        let Some(Ok(Some((batch, bytes)))) = state.ready.remove(&wanted) else { return Ok(Ok(None)) };
        state.ready_bytes -= bytes;
        state.next_to_give = self.shared.turn.first_from(wanted + 1);
        state.taken -= 1;
        state.given += 1;
        if state.waits_s.len() == WAITS_MAX {
            state.waits_s.drain(..WAITS_MAX / 2);
        }
        state.waits_s.push(begun.elapsed().as_secs_f64());
        drop(state);
        self.shared.room.notify_one();
        Ok(Ok(Some(batch)))
    }

    /// Counts since opening.
    pub fn waits(&self) -> Waits {
        let ready = self.ready();
        let state = self.shared.hold();
        Waits { batches: state.given, ready, waits_s: state.waits_s.clone() }
    }

    /// Batches that have arrived and wait.
    pub fn ready(&self) -> usize {
        self.shared.hold().ready.values().filter(|outcome| matches!(outcome, Ok(Some(_)))).count()
    }

    /// Ends the threads and forgets what waits. Does nothing in the child of a fork, where there are no threads.
    pub fn close(&self) {
        if std::process::id() != self.process {
            return;
        }
        let mut state = self.shared.hold();
        state.closed = true;
        state.ready.clear();
        drop(state);
        self.shared.client.close();
        self.shared.room.notify_all();
        self.shared.made.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A panic was already turned into an error of its step.
            let _ = thread.join();
        }
    }
}

impl<T: Turn> Drop for Ahead<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T: Turn> Shared<T> {
    fn hold(&self) -> MutexGuard<'_, State<T::Made>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut line = Line::default();
        while let Some(step) = self.take() {
            let turn = |answer| self.turn.turn(step, answer);
            let fetched = || self.client.ask(&mut line, &self.turn.path(step), &turn);
            // A thread that just ended would leave the consumer waiting.
            let outcome = catch_unwind(AssertUnwindSafe(fetched)).unwrap_or_else(|_| {
                Err(ClientError::Thread { reason: format!("fetching step {step} broke") })
            });
            self.put(step, outcome);
        }
    }

    /// The next step to fetch, once there is room; nothing when there is no more.
    fn take(&self) -> Option<u64> {
        let mut state = self.hold();
        while !(state.closed || state.over || self.has_room(&state)) {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed || state.over {
            return None;
        }
        let step = state.next_to_take;
        state.next_to_take = self.turn.first_from(step + 1);
        state.taken += 1;
        Some(step)
    }

    fn has_room(&self, state: &State<T::Made>) -> bool {
        if state.taken == 0 || state.largest_bytes == 0 {
            return state.taken == 0;
        }
        let flying = state.taken as usize - state.ready.len();
        let expected = state.ready_bytes + (flying + 1) * state.largest_bytes;
        state.taken < DEPTH_MAX && expected <= self.memory_bytes
    }

    fn put(&self, step: u64, outcome: Outcome<T::Made>) {
        let mut state = self.hold();
        if state.closed {
            return;
        }
        match &outcome {
            Ok(Some((_, bytes))) => {
                state.ready_bytes += bytes;
                state.largest_bytes = state.largest_bytes.max(*bytes);
            }
            _ => state.over = true,
        }
        state.ready.insert(step, outcome);
        let wake = state.next_to_give == step;
        drop(state);
        if wake {
            self.made.notify_all();
        }
        self.room.notify_one();
    }
}
