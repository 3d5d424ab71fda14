//! Whether to try again, and after which pause.
//!
//! A pause is drawn evenly between nothing and a bound that doubles with every try (full jitter), so that many clients that failed
//! together do not come back together. All retries of a client share one budget: when a store fails everybody, the traffic grows by
//! the budget's rate and not by the number of tries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Limits;
use crate::throttle::Pace;

/// A success earns this much of a retry.
const EARNED: f64 = 0.1;

/// The longest pause before the next try, when `tries` have failed.
pub(crate) fn bound(limits: &Limits, tries: u32) -> Duration {
    let doublings = tries.saturating_sub(1).min(20);
    limits.pause.saturating_mul(1 << doublings).min(limits.pause_max)
}

/// A pause, with `draw` between 0 and 1. What the store asks for is kept, and a little more, so that not all come at once.
pub(crate) fn pause(limits: &Limits, tries: u32, asked: Option<Duration>, draw: f64) -> Duration {
    let drawn = bound(limits, tries).mul_f64(draw);
    asked.map_or(drawn, |asked| asked + drawn.min(asked))
}

/// What is left of a client's retries.
#[derive(Debug)]
pub(crate) struct Budget(Pace);

impl Budget {
    /// A full one.
    pub(crate) fn new(limits: &Limits, now: Instant) -> Self {
        Self(Pace::new(limits.retry_rate, f64::from(limits.retry_burst), now))
    }

    /// A success earns a part of a retry.
    pub(crate) fn succeeded(&mut self) {
        self.0.earn(EARNED);
    }

    /// Spends one retry; how long to wait for it, or nothing if that would be longer than `patience`.
    pub(crate) fn spend(&mut self, patience: Duration, now: Instant) -> Option<Duration> {
        self.0.take_within(1.0, patience, now)
    }
}

/// A number between 0 and 1. Not secret: it spreads the load.
pub(crate) fn draw() -> f64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |age| age.as_nanos() as u64);
    let step = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    // The finaliser of splitmix64, over a counter, the clock and the process, so that forks differ.
    let mut mixed = step ^ seed ^ (u64::from(std::process::id()) << 32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let limits = Limits {
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(1),
            ..Limits::default()
        };
        let bounds: Vec<u128> = (1..=6).map(|tries| bound(&limits, tries).as_millis()).collect();
        assert_eq!(bounds, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(bound(&limits, u32::MAX), Duration::from_secs(1));
    }

    #[test]
    fn the_store_is_given_at_least_the_time_it_asks_for() {
        let limits = Limits::default();
        assert_eq!(pause(&limits, 1, None, 0.0), Duration::ZERO);
        assert_eq!(pause(&limits, 1, Some(Duration::from_secs(3)), 0.0), Duration::from_secs(3));
        assert!(pause(&limits, 1, Some(Duration::from_secs(3)), 1.0) > Duration::from_secs(3));
    }

    /// Goal: a store that fails everybody does not get more than the budget. Method: 1,000 requests fail in the same instant.
    #[test]
    fn a_storm_of_failures_spends_the_budget_and_no_more() {
        let limits = Limits { retry_burst: 10, retry_rate: 5.0, ..Limits::default() };
        let now = Instant::now();
        let mut budget = Budget::new(&limits, now);
        let granted: Vec<Duration> =
            (0..1_000).filter_map(|_| budget.spend(Duration::from_secs(2), now)).collect();
        assert_eq!(granted.len(), 20);
        assert_eq!(granted[9], Duration::ZERO);
        assert_eq!(granted[19], Duration::from_secs(2));
    }

    #[test]
    fn successes_earn_retries() {
        let limits = Limits { retry_burst: 1, retry_rate: 0.001, ..Limits::default() };
        let now = Instant::now();
        let mut budget = Budget::new(&limits, now);
        assert!(budget.spend(Duration::ZERO, now).is_some());
        assert!(budget.spend(Duration::ZERO, now).is_none());
        (0..10).for_each(|_| budget.succeeded());
        assert!(budget.spend(Duration::from_millis(1), now).is_some());
    }

    #[test]
    fn draws_are_between_nothing_and_one_and_differ() {
        let drawn: Vec<f64> = (0..1_000).map(|_| draw()).collect();
        assert!(drawn.iter().all(|value| (0.0..1.0).contains(value)));
        let mean = drawn.iter().sum::<f64>() / 1_000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }
}
