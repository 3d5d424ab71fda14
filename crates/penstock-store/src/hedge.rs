//! When to ask a second time for a read that is slow.
//!
//! Slow is what takes longer than 99 of 100 reads of about the same length took. Until enough were seen nothing is known and nothing
//! is asked twice; and never more than a small share of all reads, so that a store that has become slow does not get twice the load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Limits;
use penstock_io::Histogram;

/// Reads are compared with those whose length has the same power of four.
const CLASSES: usize = 20;
/// A second request for less than this is never worth it.
const SOONEST: Duration = Duration::from_millis(5);

/// What a client knows about its reads.
pub(crate) struct Hedges {
    /// How long reads took, by class of length.
    taken: [Histogram; CLASSES],
    reads: AtomicU64,
    hedged: AtomicU64,
}

impl Hedges {
    /// Nothing known.
    pub(crate) fn new() -> Self {
        Self {
            taken: std::array::from_fn(|_| Histogram::new()),
            reads: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
        }
    }

    /// How long to wait for a read of this length before asking again; nothing when that should not be done.
    pub(crate) fn patience(&self, bytes: u64, limits: &Limits) -> Option<Duration> {
        if limits.hedge_share == 0.0 {
            return None;
        }
        let seen = &self.taken[class(bytes)];
        if seen.count() < limits.hedge_samples.max(1) {
            return None;
        }
        seen.quantile(0.99).map(|slow| slow.max(SOONEST))
    }

    /// Whether one more second request is within the share; if so it is counted.
    pub(crate) fn allow(&self, limits: &Limits) -> bool {
        let allowed = (self.reads.load(Ordering::Relaxed) as f64 * limits.hedge_share) as u64;
        self.hedged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |hedged| {
                (hedged < allowed).then_some(hedged + 1)
            })
            .is_ok()
    }

    /// A read ended well.
    pub(crate) fn finished(&self, bytes: u64, taken: Duration) {
        self.taken[class(bytes)].add(taken);
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

fn class(bytes: u64) -> usize {
    (bytes.max(1).ilog2() as usize / 2).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(limits: &Limits) -> Hedges {
        let hedges = Hedges::new();
        for _ in 0..limits.hedge_samples {
            hedges.finished(1 << 20, Duration::from_millis(20));
        }
        hedges
    }

    #[test]
    fn nothing_is_slow_before_enough_was_seen() {
        let limits = Limits::default();
        assert_eq!(Hedges::new().patience(1 << 20, &limits), None);
        let hedges = known(&limits);
        let patience = hedges.patience(1 << 20, &limits).unwrap();
        assert!((20..23).contains(&patience.as_millis()), "{patience:?}");
        assert_eq!(hedges.patience(64 << 20, &limits), None, "other lengths say nothing about this one");
        assert_eq!(hedges.patience(1 << 20, &Limits { hedge_share: 0.0, ..limits }), None);
    }

    #[test]
    fn second_requests_stay_within_their_share() {
        let limits = Limits { hedge_share: 0.05, ..Limits::default() };
        let hedges = known(&limits);
        assert_eq!((0..1_000).filter(|_| hedges.allow(&limits)).count(), 5);
    }
}
