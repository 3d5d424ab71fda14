//! Rates: how long one has to wait so that on average no more than so many things happen per second.

use std::time::{Duration, Instant};

/// A bucket that fills at a rate and may be drawn below empty: who draws then waits until it would be full enough. Places are given
/// in the order of asking, so nobody starves.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What flows in per second.
    rate: f64,
    /// What fits in; so much may be taken at once.
    burst: f64,
    /// What is in it, at `at`; negative while others wait.
    level: f64,
    at: Instant,
}

impl Pace {
    /// A full bucket.
    pub(crate) fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self { rate, burst, level: burst, at: now }
    }

    /// Takes an amount; how long to wait before using it.
    pub(crate) fn take(&mut self, amount: f64, now: Instant) -> Duration {
        self.fill(now);
        self.level -= amount;
        Duration::from_secs_f64((-self.level / self.rate).max(0.0))
    }

    /// Takes an amount only if the wait would not be longer than `patience`.
    pub(crate) fn take_within(&mut self, amount: f64, patience: Duration, now: Instant) -> Option<Duration> {
        let wait = self.take(amount, now);
        if wait > patience {
            self.level += amount;
            return None;
        }
        Some(wait)
    }

    /// Puts something in that was earned.
    pub(crate) fn earn(&mut self, amount: f64) {
        self.level = (self.level + amount).min(self.burst);
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.earn(passed * self.rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_comes_at_the_rate() {
        let now = Instant::now();
        let mut pace = Pace::new(10.0, 5.0, now);
        let waits: Vec<u128> = (0..8).map(|_| pace.take(1.0, now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 100, 200, 300]);
        let later = now + Duration::from_secs(10);
        assert_eq!(pace.take(5.0, later), Duration::ZERO);
        assert_eq!(pace.take(1.0, later), Duration::from_millis(100));
    }

    #[test]
    fn who_is_not_patient_enough_takes_nothing() {
        let now = Instant::now();
        let mut pace = Pace::new(1.0, 1.0, now);
        assert_eq!(pace.take_within(1.0, Duration::ZERO, now), Some(Duration::ZERO));
        assert_eq!(pace.take_within(1.0, Duration::from_millis(999), now), None);
        assert_eq!(pace.take_within(1.0, Duration::from_secs(1), now), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let now = Instant::now() + Duration::from_secs(100);
        let mut pace = Pace::new(1.0, 1.0, now);
        pace.take(1.0, now);
        assert_eq!(pace.take(1.0, now - Duration::from_secs(50)), Duration::from_secs(1));
    }
}
