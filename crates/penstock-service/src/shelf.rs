//! The shelf: batches that were made before they are asked for, lane by lane, within a budget of memory.
//!
//! A request says which step a lane is at; threads make that step first and the steps after it when there is room. Several
//! clients of one lane find the same batches here. What is on the shelf decides speed only: whatever is not there is made.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::body::Body;
use crate::counts::{Counts, Held, add};
use crate::error::ServeError;
use crate::lane::Lane;
use crate::options::Options;
use crate::problem::Problem;

/// Makes batches from nothing but lane and step.
pub trait MakeBodies: Send + Sync + 'static {
    /// The first step from `step` on that is not left out.
    fn first_from(&self, step: u64) -> u64;

    /// Whether the lane can have the step at all.
    fn check(&self, lane: Lane, step: u64) -> Result<(), Problem>;

    /// Waits until all is there that a step needs, at most for `timeout`; whether it is.
    fn wait(&self, step: u64, timeout: Duration) -> Result<bool, Problem>;

    /// The batch of a step; nothing when the stream ends before it.
    fn make(&self, lane: Lane, step: u64) -> Result<Option<Body>, Problem>;

    /// Answers a question that is not about a batch, as JSON.
    fn answer(&self, question: &str, numbers: &[(String, u64)]) -> Result<Vec<u8>, Problem>;

    /// Ends all waits: the server closes.
    fn stop(&self);
}

/// A batch, the end of the stream, or why there is none.
pub(crate) type Outcome = Result<Option<Body>, Problem>;

/// What a request gets at once.
pub(crate) enum Asked {
    /// It is there.
    Ready(Outcome),
    /// It is being made.
    Later(oneshot::Receiver<Outcome>),
}

/// A lane may have this share of the memory ahead of what was asked for last, and as much behind it, for its other clients.
const LANE_SHARE: usize = 4;
/// Behind, no more than this: what is used again and again should stay in the processor's caches.
const BEHIND_BYTES_MAX: usize = 64 << 20;
/// Steps that are made ahead whatever their size.
const AHEAD_MIN: u64 = 2;
/// What stands further ahead than any client reads belongs to one that has gone elsewhere.
const FAR: u64 = 256;
/// Lanes that are made ahead for; the one that nobody asked for the longest makes room for a further one.
const LANES_MAX: usize = 4096;
/// How long a thread waits for what a step needs before it does something else.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often idle threads look for lanes to forget.
const SWEEP: Duration = Duration::from_millis(500);

enum Place {
    /// Somebody makes it, or will soon; those wait for it.
    Making(Vec<oneshot::Sender<Outcome>>),
    /// It is made; whether somebody asked for it already.
    Ready(Outcome, bool),
}

struct LaneShelf {
    asked_at: Instant,
    /// The step that was asked for last.
    at: u64,
    steps: BTreeMap<u64, Place>,
    /// Whether a step was the end, or could not be made: nothing is made ahead of it.
    stuck: bool,
}

struct State {
    lanes: HashMap<Lane, LaneShelf>,
    /// Steps that somebody waits for and nobody makes yet.
    asked: VecDeque<(Lane, u64)>,
    held_bytes: usize,
    /// Steps that are being made, and the largest batch so far: what they will need.
    making: usize,
    largest_bytes: usize,
    swept_at: Instant,
    closed: bool,
}

/// Batches that are made or being made, by lane and step, within a budget of memory.
pub(crate) struct Shelf {
    state: Mutex<State>,
    /// There is something to make, or the server closes.
    work: Condvar,
    maker: Arc<dyn MakeBodies>,
    memory_bytes: usize,
    ahead_max: u64,
    forget_after: Duration,
    counts: Arc<Counts>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Shelf {
    /// Starts the threads.
    pub(crate) fn start(
        maker: Arc<dyn MakeBodies>,
        options: &Options,
        counts: Arc<Counts>,
    ) -> Result<Arc<Self>, ServeError> {
        let state = State {
            lanes: HashMap::new(),
            asked: VecDeque::new(),
            held_bytes: 0,
            making: 0,
            largest_bytes: 0,
            swept_at: Instant::now(),
            closed: false,
        };
        let shelf = Arc::new(Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            maker,
            memory_bytes: options.memory_bytes,
            ahead_max: options.ahead_max as u64,
            forget_after: options.forget_after,
            counts,
            threads: Mutex::default(),
        });
        for number in 0..options.threads.max(1) {
            let theirs = Arc::clone(&shelf);
            let thread = std::thread::Builder::new()
                .name(format!("penstock-make-{number}"))
                .spawn(move || theirs.work())
                .map_err(|problem| ServeError::Start { reason: problem.to_string() })?;
            shelf.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(shelf)
    }

    /// A step that a client wants now.
    pub(crate) fn ask(&self, lane: Lane, step: u64) -> Asked {
        let mut state = self.hold();
        if state.closed {
            return Asked::Ready(Err(Problem::busy("it is stopping")));
        }
        state.make_room_for_lane(lane, &self.counts);
        let fresh = || LaneShelf { asked_at: Instant::now(), at: step, steps: BTreeMap::new(), stuck: false };
        let shelf = state.lanes.entry(lane).or_insert_with(fresh);
        shelf.asked_at = Instant::now();
        shelf.at = step;
        shelf.stuck = false;
        let asked = match shelf.steps.get_mut(&step) {
            Some(Place::Ready(outcome, asked)) => {
                let answer = outcome.clone();
                *asked = true;
                if answer.is_err() {
                    // What failed may succeed for the next one who asks.
                    shelf.steps.remove(&step);
                }
                add(&self.counts.ready, 1);
                Asked::Ready(answer)
            }
            Some(Place::Making(waiters)) => {
                let (sender, receiver) = oneshot::channel();
                waiters.push(sender);
                Asked::Later(receiver)
            }
            None => {
                let (sender, receiver) = oneshot::channel();
                shelf.steps.insert(step, Place::Making(vec![sender]));
                state.asked.push_back((lane, step));
                Asked::Later(receiver)
            }
        };
        state.drop_passed(lane, self.memory_bytes, &self.counts);
        drop(state);
        self.work.notify_one();
        asked
    }

    /// What is there now.
    pub(crate) fn held(&self) -> Held {
        let state = self.hold();
        let ready = |shelf: &LaneShelf| shelf.steps.values().filter(|place| place.bytes() > 0).count();
        Held {
            lanes: state.lanes.len(),
            batches: state.lanes.values().map(ready).sum(),
            bytes: state.held_bytes,
        }
    }

    /// Ends the threads; whoever still waits is told that the server stops.
    pub(crate) fn close(&self) {
        let mut state = self.hold();
        state.closed = true;
        state.lanes.clear();
        state.asked.clear();
        drop(state);
        self.maker.stop();
        self.work.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner)) {
            // A panic while making a batch was turned into a problem of its step.
            let _ = thread.join();
        }
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.hold();
        while !state.closed {
            if state.swept_at.elapsed() >= SWEEP {
                state.forget(self.forget_after, &self.counts);
            }
            let Some((lane, step)) = self.next_task(&mut state) else {
                state =
                    self.work.wait_timeout(state, SWEEP).map_or_else(|p| p.into_inner().0, |waited| waited.0);
                continue;
            };
            state.making += 1;
            drop(state);
            let outcome = self.make(lane, step);
            state = self.hold();
            state.making -= 1;
            self.put(&mut state, lane, step, outcome);
        }
    }

    /// What somebody waits for; else the step that the lane with the fewest batches ahead needs next, if there is room.
    fn next_task(&self, state: &mut State) -> Option<(Lane, u64)> {
        if let Some(task) = state.asked.pop_front() {
            let expected = (state.making + 1) * state.largest_bytes;
            state.evict(self.memory_bytes.saturating_sub(expected), task.0, &self.counts);
            return Some(task);
        }
        let expected = (state.making + 1) * state.largest_bytes;
        if state.largest_bytes == 0 || state.held_bytes + expected > self.memory_bytes {
            return None;
        }
        let next =
            |(lane, shelf): (&Lane, &LaneShelf)| self.next_ahead(shelf).map(|next_step| (next_step, *lane));
        let ((_, step), lane) =
            state.lanes.iter().filter(|(_, shelf)| !shelf.stuck).filter_map(next).min()?;
        state.lanes.get_mut(&lane)?.steps.insert(step, Place::Making(Vec::new()));
        Some((lane, step))
    }

    /// How many steps a lane has ahead without a gap, and the step after them; nothing when it has enough.
    fn next_ahead(&self, shelf: &LaneShelf) -> Option<(u64, u64)> {
        let (mut ahead, mut bytes, mut step) = (0, 0, self.maker.first_from(shelf.at + 1));
        while let Some(place) = shelf.steps.get(&step) {
            ahead += 1;
            bytes += place.bytes();
            step = self.maker.first_from(step + 1);
        }
        let room = ahead < self.ahead_max && bytes < self.memory_bytes / LANE_SHARE;
        (room || ahead < AHEAD_MIN).then_some((ahead, step))
    }

    /// The batch of a step; nothing when it has to wait for something, or the server closes.
    fn make(&self, lane: Lane, step: u64) -> Option<Outcome> {
        match self.maker.wait(step, PATIENCE) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(problem) => return Some(Err(problem)),
        }
        let begun = Instant::now();
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.maker.make(lane, step))).unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
                let message = format!("making step {step} broke: {said}");
                let fields = serde_json::json!({"reason": message});
                Err(Problem::new(500, "ServiceError", &message, fields))
            });
        self.counts.make.add(begun.elapsed());
        add(if outcome.is_ok() { &self.counts.batches_made } else { &self.counts.failed }, 1);
        Some(outcome)
    }

    fn put(&self, state: &mut State, lane: Lane, step: u64, outcome: Option<Outcome>) {
        let Some(shelf) = state.lanes.get_mut(&lane) else { return };
        let Some(outcome) = outcome else {
            // Not possible yet. What somebody waits for is tried again after everything else; the rest is forgotten.
            match shelf.steps.remove(&step) {
                Some(Place::Making(mut waiters)) if !waiters.is_empty() => {
                    waiters.retain(|waiter| !waiter.is_closed());
                    shelf.steps.insert(step, Place::Making(waiters));
                    state.asked.push_back((lane, step));
                }
                _ => shelf.stuck = true,
            }
            return;
        };
        let bytes = outcome.as_ref().ok().and_then(Option::as_ref).map_or(0, Body::bytes);
        shelf.stuck |= bytes == 0;
        let Some(Place::Making(waiters)) = shelf.steps.remove(&step) else { return };
        let asked = !waiters.is_empty();
        for waiter in waiters {
            // Whoever has gone away needs no answer.
            let _ = waiter.send(outcome.clone());
        }
        // Failures and the end are told and not kept: asking again tries again.
        if bytes > 0 {
            shelf.steps.insert(step, Place::Ready(outcome, asked));
            state.held_bytes += bytes;
            state.largest_bytes = state.largest_bytes.max(bytes);
            state.drop_passed(lane, self.memory_bytes, &self.counts);
        }
    }
}

impl Place {
    fn bytes(&self) -> usize {
        match self {
            Place::Ready(Ok(Some(body)), _) => body.bytes(),
            _ => 0,
        }
    }

    fn is_making(&self) -> bool {
        matches!(self, Place::Making(_))
    }
}

impl State {
    /// Takes a batch off the shelf.
    fn take_off(&mut self, lane: Lane, step: u64, counts: &Counts) {
        let Some(place) = self.lanes.get_mut(&lane).and_then(|shelf| shelf.steps.remove(&step)) else {
            return;
        };
        self.held_bytes -= place.bytes();
        if matches!(place, Place::Ready(_, false)) {
            add(&counts.unasked, 1);
        }
    }

    /// Takes off what a lane is past, but for its share, and what stands where nobody reads.
    fn drop_passed(&mut self, lane: Lane, memory_bytes: usize, counts: &Counts) {
        let Some(shelf) = self.lanes.get(&lane) else { return };
        let mut left = (memory_bytes / LANE_SHARE).min(BEHIND_BYTES_MAX);
        let mut gone = Vec::new();
        for (step, place) in shelf.steps.range(..shelf.at).rev().filter(|(_, place)| !place.is_making()) {
            match left.checked_sub(place.bytes()) {
                Some(less) => left = less,
                None => gone.push(*step),
            }
        }
        let far = shelf.steps.range(shelf.at.saturating_add(FAR)..).filter(|(_, place)| !place.is_making());
        gone.extend(far.map(|(step, _)| *step));
        gone.into_iter().for_each(|step| self.take_off(lane, step, counts));
    }

    /// Takes batches off until no more than `allowed` bytes are held: first those that were delivered, then what was made ahead
    /// for other lanes, then for this one.
    fn evict(&mut self, allowed: usize, lane: Lane, counts: &Counts) {
        if self.held_bytes <= allowed {
            return;
        }
        let mut candidates: Vec<_> = self
            .lanes
            .iter()
            .flat_map(|(&other, shelf)| {
                let far = move |step: u64| u64::MAX - step;
                shelf.steps.iter().filter(|(_, place)| place.bytes() > 0).map(move |(&step, place)| {
                    let asked = matches!(place, Place::Ready(_, true));
                    ((!asked, other == lane, shelf.asked_at, far(step)), other, step)
                })
            })
            .collect();
        candidates.sort();
        for (_, lane, step) in candidates {
            if self.held_bytes <= allowed {
                return;
            }
            self.take_off(lane, step, counts);
        }
    }

    fn make_room_for_lane(&mut self, lane: Lane, counts: &Counts) {
        if self.lanes.len() < LANES_MAX || self.lanes.contains_key(&lane) {
            return;
        }
        if let Some(oldest) = self.lanes.iter().min_by_key(|(_, shelf)| shelf.asked_at).map(|(lane, _)| *lane)
        {
            self.forget_lane(oldest, counts);
        }
    }

    /// Forgets lanes that nobody has asked for a while. Making that is under way ends on its own.
    fn forget(&mut self, after: Duration, counts: &Counts) {
        self.swept_at = Instant::now();
        let idle = self.lanes.iter().filter(|(_, shelf)| shelf.asked_at.elapsed() >= after);
        let idle: Vec<Lane> = idle.map(|(lane, _)| *lane).collect();
        idle.into_iter().for_each(|lane| self.forget_lane(lane, counts));
    }

    fn forget_lane(&mut self, lane: Lane, counts: &Counts) {
        let steps: Vec<u64> =
            self.lanes.get(&lane).map(|shelf| shelf.steps.keys().copied().collect()).unwrap_or_default();
        steps.into_iter().for_each(|step| self.take_off(lane, step, counts));
        self.lanes.remove(&lane);
        self.asked.retain(|(other, _)| *other != lane);
    }
}

#[cfg(test)]
mod tests;
