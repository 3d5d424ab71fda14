//! How long, how often and how much: every limit of a client in one place, with its default.

use std::time::Duration;

/// Limits of one client. Everything a client does ends within them.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Longest time until a connection stands.
    pub connect: Duration,
    /// Longest time without a byte, before the answer and inside of it.
    pub read: Duration,
    /// Longest time that one call may take for each part of it, with all its tries and pauses.
    pub total: Duration,
    /// How often a request is made at most, the first time included.
    pub tries: u32,
    /// The first pause is at most this long; each further one at most twice the one before. The length is drawn evenly from zero.
    pub pause: Duration,
    /// No pause is longer, unless the store asks for it.
    pub pause_max: Duration,
    /// Retries that a client may make at once; after that they wait for each other.
    pub retry_burst: u32,
    /// Retries that a client may make per second, on average. Successes earn more: one for every ten.
    pub retry_rate: f64,
    /// Share of reads that may be asked for a second time because they are slow; 0 for never.
    pub hedge_share: f64,
    /// Reads that must have been seen before it is known what slow is.
    pub hedge_samples: u64,
    /// Requests under way at once.
    pub requests_max: usize,
    /// Requests per second, if limited.
    pub request_rate: Option<f64>,
    /// Bytes per second in either direction, if limited.
    pub byte_rate: Option<f64>,
    /// Large reads and writes are cut into parts of this length, which move at the same time.
    pub part_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(20),
            total: Duration::from_secs(120),
            tries: 8,
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            retry_burst: 64,
            retry_rate: 8.0,
            hedge_share: 0.05,
            hedge_samples: 100,
            requests_max: 32,
            request_rate: None,
            byte_rate: None,
            part_bytes: 8 << 20,
        }
    }
}

impl Limits {
    /// What of it makes no sense, if anything: the name and the reason.
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        let times = [("connect_s", self.connect), ("read_s", self.read), ("total_s", self.total)];
        if let Some((name, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            return Some((name, "it has to be more than nothing"));
        }
        let counts = [
            ("tries", self.tries as usize),
            ("requests_max", self.requests_max),
            ("part_bytes", self.part_bytes),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Some((name, "it has to be at least 1"));
        }
        if !(0.0..=1.0).contains(&self.hedge_share) {
            return Some(("hedge_share", "it is a share, between 0 and 1"));
        }
        let rates = [
            ("request_rate", self.request_rate),
            ("byte_rate", self.byte_rate),
            ("retry_rate", Some(self.retry_rate)),
        ];
        let bad = |rate: &Option<f64>| rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0));
        rates
            .into_iter()
            .find(|(_, rate)| bad(rate))
            .map(|(name, _)| (name, "a rate has to be more than nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense_and_nonsense_is_named() {
        assert_eq!(Limits::default().fault(), None);
        let named = |limits: Limits| limits.fault().map(|(name, _)| name);
        assert_eq!(named(Limits { tries: 0, ..Limits::default() }), Some("tries"));
        assert_eq!(named(Limits { read: Duration::ZERO, ..Limits::default() }), Some("read_s"));
        assert_eq!(named(Limits { byte_rate: Some(0.0), ..Limits::default() }), Some("byte_rate"));
        assert_eq!(named(Limits { hedge_share: 2.0, ..Limits::default() }), Some("hedge_share"));
    }
}
