//! Which step of a feed the present thread reads for, so that a file can say which steps got its bytes.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

const NONE: u64 = u64::MAX;

thread_local! {
    static STEP: Cell<u64> = const { Cell::new(NONE) };
}

/// Ends the reading for a step when it is dropped.
#[must_use = "the thread reads for the step for as long as this lives"]
pub struct ReaderStep {
    before: u64,
}

impl ReaderStep {
    /// Until this is dropped, what the thread reads, it reads for `step`.
    pub fn enter(step: u64) -> Self {
        Self { before: STEP.replace(step) }
    }

    /// The same for what another thread reads for this one.
    pub fn enter_same(step: Option<u64>) -> Self {
        Self::enter(step.unwrap_or(NONE))
    }

    /// What the thread reads from now on, it reads for `step`; for threads that say so themselves at every step.
    pub fn set(step: Option<u64>) {
        STEP.set(step.unwrap_or(NONE));
    }

    /// The step that the present thread reads for.
    pub fn current() -> Option<u64> {
        Some(STEP.get()).filter(|&step| step != NONE)
    }
}

impl Drop for ReaderStep {
    fn drop(&mut self) {
        STEP.set(self.before);
    }
}

/// The first and the last of some steps, updated by any number of threads.
pub(crate) struct StepSpan {
    first: AtomicU64,
    /// One after the last; 0 while there is none.
    end: AtomicU64,
}

impl StepSpan {
    pub(crate) const fn new() -> Self {
        Self { first: AtomicU64::new(NONE), end: AtomicU64::new(0) }
    }

    /// Adds the step that the present thread reads for, if it reads for one.
    pub(crate) fn add_current(&self) {
        if let Some(step) = ReaderStep::current() {
            self.add(&(step..=step));
        }
    }

    /// Adds steps. Most reads are for the step of the read before, so this is two loads as a rule.
    pub(crate) fn add(&self, steps: &RangeInclusive<u64>) {
        if self.first.load(Ordering::Relaxed) > *steps.start() {
            self.first.fetch_min(*steps.start(), Ordering::Relaxed);
        }
        if self.end.load(Ordering::Relaxed) <= *steps.end() {
            self.end.fetch_max(steps.end() + 1, Ordering::Relaxed);
        }
    }

    /// What was added.
    pub(crate) fn get(&self) -> Option<RangeInclusive<u64>> {
        span(self.first.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed))
    }

    /// What was added; nothing is left.
    pub(crate) fn take(&self) -> Option<RangeInclusive<u64>> {
        span(self.first.swap(NONE, Ordering::Relaxed), self.end.swap(0, Ordering::Relaxed))
    }
}

fn span(first: u64, end: u64) -> Option<RangeInclusive<u64>> {
    // One half of a step that is being added says as much as the whole.
    match (first, end) {
        (NONE, 0) => None,
        (NONE, end) => Some(end - 1..=end - 1),
        (first, end) => Some(first..=end.saturating_sub(1).max(first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_spanned_and_taken() {
        let steps = StepSpan::new();
        steps.add_current();
        assert_eq!(steps.get(), None);
        {
            let _outer = ReaderStep::enter(7);
            steps.add_current();
            let inner = ReaderStep::enter(5);
            steps.add_current();
            drop(inner);
            assert_eq!(ReaderStep::current(), Some(7));
        }
        assert_eq!(ReaderStep::current(), None);
        assert_eq!((steps.take(), steps.take()), (Some(5..=7), None));
    }
}
