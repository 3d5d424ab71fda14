//! The threads that fetch ahead: a few for the whole process, made when needed, gone when idle, made anew after a fork.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::Far;
use super::flight::Flight;
use crate::cache::forks::generation;

/// Fetches at once.
const THREADS_MAX: usize = 16;
/// Fetches that may wait; more are not asked for ahead.
const QUEUE_MAX: usize = 256;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(5);

static POOL: ArcSwapOption<Pool> = ArcSwapOption::const_empty();

struct Pool {
    generation: u64,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Arc<Far>, Arc<Flight>)>,
    threads: usize,
    idle: usize,
}

/// Has a fetch done by a thread; false if there are too many already, or no thread can be had.
pub(crate) fn submit(far: &Arc<Far>, flight: &Arc<Flight>) -> bool {
    let pool = current();
    let mut state = pool.hold();
    if state.queue.len() >= QUEUE_MAX {
        return false;
    }
    if state.idle <= state.queue.len() && state.threads < THREADS_MAX {
        let name = format!("penstock-fetch-{}", state.threads);
        let theirs = Arc::clone(&pool);
        let spawned = std::thread::Builder::new().name(name).spawn(move || theirs.run());
        state.threads += usize::from(spawned.is_ok());
    }
    if state.threads == 0 {
        return false;
    }
    state.queue.push_back((Arc::clone(far), Arc::clone(flight)));
    pool.work.notify_one();
    true
}

/// The pool of this process; a child of a fork begins with none of its parent's threads.
fn current() -> Arc<Pool> {
    let known = POOL.load_full();
    if let Some(pool) = &known {
        if pool.generation == generation() {
            return Arc::clone(pool);
        }
    }
    let fresh = Arc::new(Pool { generation: generation(), state: Mutex::default(), work: Condvar::new() });
    POOL.compare_and_swap(&known, Some(Arc::clone(&fresh)));
    // The parent's is never dropped here: what waits in it belongs to the parent.
    std::mem::forget(known);
    POOL.load_full().unwrap_or(fresh)
}

impl Pool {
    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut scratch = Vec::new();
        while let Some((far, flight)) = self.next() {
            // A reader that could not wait may have begun it already.
            if flight.begin() {
                // What went wrong is told to those who wait; if nobody does, the next reader tries again.
                let _ = far.fly(&flight, flight.pieces.start, &mut scratch);
            }
        }
    }

    fn next(&self) -> Option<(Arc<Far>, Arc<Flight>)> {
        let mut state = self.hold();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            let (held, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = held;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}
