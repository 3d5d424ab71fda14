//! Who makes which step, and what is made: the one table of everybody who reads the same lane on a host.
//!
//! The first to ask for a step is told to make it; those who ask meanwhile wait for what comes of it. Making twice changes nothing
//! but time, so nobody is trusted for long: whoever has not finished a step in a few times what others took is overtaken. What was
//! made stays until there are more bytes than the budget allows; then the oldest goes. So nobody waits for those who lag, and they
//! find nothing and make their steps themselves.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long somebody may take before another makes the step too: so many times what the slowest took lately, within limits.
const PATIENCE_TIMES: f64 = 4.0;
const PATIENCE_MIN: Duration = Duration::from_millis(500);
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// As long as nobody has finished anything.
const PATIENCE_FIRST: Duration = Duration::from_millis(900);
/// What is left of the slowest time with every step that was quicker.
const FORGETTING: f64 = 0.95;
/// Steps that are kept, since each has a descriptor; twice as many as a feed reads ahead.
const KEPT_MAX: usize = 128;
/// Steps that may be claimed at a time; more are made without being shared.
const CLAIMS_MAX: usize = 4096;

/// What somebody who asks for a step is told.
pub(super) enum Answer {
    /// It is made.
    Ready(Shared),
    /// Nobody makes it yet, or somebody takes too long: make it.
    Make,
    /// Somebody makes it; ask again.
    Wait,
    /// The table is closed.
    Closed,
}

/// Bytes in sealed memory.
#[derive(Clone)]
pub(super) struct Shared {
    /// The memory.
    pub(super) file: Arc<OwnedFd>,
    /// How many.
    pub(super) bytes: u64,
}

enum Entry {
    /// Somebody makes it.
    Claimed { owner: u64, since: Instant },
    /// It is made.
    Ready(Shared),
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    /// Steps that are made, in the order in which they came.
    order: VecDeque<u64>,
    bytes: u64,
    /// Who takes part, with how many connections.
    members: BTreeMap<u64, usize>,
    /// The longest time that making took lately.
    slowest_s: Option<f64>,
    closed: bool,
}

/// Steps that are made or being made, by whom, and who waits for them.
pub(super) struct Table {
    state: Mutex<State>,
    /// Something is made, given up or closed.
    changed: Condvar,
    budget_bytes: u64,
}

impl Table {
    /// An empty table that keeps at most so many bytes.
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), budget_bytes }
    }

    /// What there is of a step, waiting at most `timeout` for others; `owner` makes it, if it is to be made.
    pub(super) fn ask(&self, step: u64, owner: u64, timeout: Duration) -> Answer {
        let begun = Instant::now();
        let mut state = self.hold();
        loop {
            if state.closed {
                return Answer::Closed;
            }
            let patience = state.patience();
            let wait = match state.entries.get_mut(&step) {
                Some(Entry::Ready(shared)) => return Answer::Ready(shared.clone()),
                Some(Entry::Claimed { owner: other, since }) => {
                    let left = patience.saturating_sub(since.elapsed());
                    if *other == owner || left.is_zero() {
                        (*other, *since) = (owner, Instant::now());
                        return Answer::Make;
                    }
                    left
                }
                None => {
                    state.claim(step, owner);
                    return Answer::Make;
                }
            };
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Answer::Wait;
            }
            let woken = self.changed.wait_timeout(state, left.min(wait).max(Duration::from_millis(1)));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Keeps what was made of a step.
    pub(super) fn put(&self, step: u64, shared: Shared) {
        let mut state = self.hold();
        if state.closed || shared.bytes > self.budget_bytes {
            state.entries.remove(&step);
        } else {
            state.keep(step, shared);
            while state.bytes > self.budget_bytes || state.order.len() > KEPT_MAX {
                let Some(oldest) = state.order.front().copied() else { break };
                state.forget(oldest);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes a claim back: whoever had it will not make the step, or cannot.
    pub(super) fn release(&self, step: u64, owner: u64) {
        let mut state = self.hold();
        if matches!(state.entries.get(&step), Some(Entry::Claimed { owner: other, .. }) if *other == owner) {
            state.entries.remove(&step);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Somebody takes part, once more.
    pub(super) fn join(&self, member: u64) {
        *self.hold().members.entry(member).or_default() += 1;
    }

    /// Somebody takes part once less.
    pub(super) fn leave(&self, member: u64) {
        let mut state = self.hold();
        if let Some(count) = state.members.get_mut(&member) {
            *count -= 1;
            if *count == 0 {
                state.members.remove(&member);
            }
        }
    }

    /// How many take part, and how many bytes are kept.
    pub(super) fn told(&self) -> (usize, u64) {
        let state = self.hold();
        (state.members.len(), state.bytes)
    }

    /// Forgets everything and ends all waits.
    pub(super) fn close(&self) {
        let mut state = self.hold();
        state.closed = true;
        state.entries.clear();
        state.order.clear();
        state.bytes = 0;
        drop(state);
        self.changed.notify_all();
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn patience(&self) -> Duration {
        let Some(slowest) = self.slowest_s else { return PATIENCE_FIRST };
        Duration::from_secs_f64((slowest * PATIENCE_TIMES).min(3600.0)).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    fn claim(&mut self, step: u64, owner: u64) {
        if self.entries.len() - self.order.len() < CLAIMS_MAX {
            self.entries.insert(step, Entry::Claimed { owner, since: Instant::now() });
        }
    }

    fn keep(&mut self, step: u64, shared: Shared) {
        match self.entries.get(&step) {
            // Two have made it, and one was first.
            Some(Entry::Ready(_)) => return,
            Some(Entry::Claimed { since, .. }) => {
                let took = since.elapsed().as_secs_f64();
                self.slowest_s = Some(self.slowest_s.map_or(took, |known| took.max(known * FORGETTING)));
            }
            None => {}
        }
        self.bytes += shared.bytes;
        self.order.push_back(step);
        self.entries.insert(step, Entry::Ready(shared));
    }

    fn forget(&mut self, step: u64) {
        if let Some(Entry::Ready(shared)) = self.entries.remove(&step) {
            self.bytes -= shared.bytes;
            self.order.retain(|&other| other != step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const SOON: Duration = Duration::from_secs(60);

    fn shared(bytes: u64) -> Shared {
        Shared { file: Arc::new(tempfile::tempfile().unwrap().into()), bytes }
    }

    fn told(answer: &Answer) -> &'static str {
        match answer {
            Answer::Ready(_) => "ready",
            Answer::Make => "make",
            Answer::Wait => "wait",
            Answer::Closed => "closed",
        }
    }

    #[test]
    fn the_first_makes_a_step_and_the_others_get_it() {
        let table = Table::new(1000);
        assert_eq!(told(&table.ask(7, 10, NOW)), "make");
        assert_eq!(told(&table.ask(7, 20, NOW)), "wait");
        assert_eq!(told(&table.ask(8, 20, NOW)), "make");
        table.put(7, shared(10));
        assert_eq!(told(&table.ask(7, 20, NOW)), "ready");
        assert_eq!(told(&table.ask(7, 30, NOW)), "ready");
    }

    #[test]
    fn whoever_waits_is_woken_by_what_was_made_and_by_a_claim_that_is_given_up() {
        let table = Table::new(1000);
        assert_eq!(told(&table.ask(0, 10, NOW)), "make");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| told(&table.ask(0, 20, SOON)));
            table.put(0, shared(1));
            assert_eq!(waits.join().unwrap(), "ready");
            assert_eq!(told(&table.ask(1, 10, NOW)), "make");
            let waits = scope.spawn(|| told(&table.ask(1, 20, SOON)));
            table.release(1, 10);
            assert_eq!(waits.join().unwrap(), "make");
            let waits = scope.spawn(|| told(&table.ask(1, 30, SOON)));
            table.close();
            assert_eq!(waits.join().unwrap(), "closed");
        });
    }

    #[test]
    fn whoever_takes_too_long_is_overtaken() {
        let table = Table::new(1000);
        assert_eq!(told(&table.ask(0, 10, NOW)), "make");
        assert_eq!(told(&table.ask(0, 20, SOON)), "make");
        // The one that was overtaken is late, but what it made is as good.
        table.put(0, shared(5));
        assert_eq!(told(&table.ask(0, 20, NOW)), "ready");
        table.put(0, shared(5));
        assert_eq!(table.told(), (0, 5));
    }

    #[test]
    fn bytes_stay_within_the_budget_and_the_oldest_goes_first() {
        let table = Table::new(25);
        for step in [9, 4, 5] {
            assert_eq!(told(&table.ask(step, 10, NOW)), "make");
            table.put(step, shared(10));
            assert!(table.told().1 <= 25);
        }
        assert_eq!(told(&table.ask(9, 20, NOW)), "make");
        assert_eq!(told(&table.ask(4, 20, NOW)), "ready");
        table.put(9, shared(26));
        assert_eq!(table.told().1, 20);
        assert_eq!(told(&table.ask(9, 20, NOW)), "make");
        let many = Table::new(1 << 20);
        (0..2 * KEPT_MAX as u64).for_each(|step| many.put(step, shared(1)));
        assert_eq!(many.told().1, KEPT_MAX as u64);
        assert_eq!(told(&table.ask(9, 20, NOW)), "make");
    }

    #[test]
    fn members_are_counted_once_however_many_connections_they_have() {
        let table = Table::new(1000);
        [1, 2, 2].into_iter().for_each(|member| table.join(member));
        assert_eq!(table.told().0, 2);
        [2, 2, 2].into_iter().for_each(|member| table.leave(member));
        assert_eq!(table.told().0, 1);
    }
}
