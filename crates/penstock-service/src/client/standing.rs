//! How servers stand with a client: which one is asked next, and what each said last. Decides purely; the time comes in.

use std::time::{Duration, Instant};

/// How long a server that failed is left alone: this at first, twice as long each time, up to the second.
const COOL_MIN: Duration = Duration::from_millis(25);
const COOL_MAX: Duration = Duration::from_secs(1);

/// One server.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// Failures since it last answered.
    failures: u32,
    /// It is left alone until then.
    until: Option<Instant>,
    pub(super) words: Option<String>,
}

/// All servers; `preferred` is asked as long as it answers.
#[derive(Debug)]
pub(super) struct Standings {
    pub(super) servers: Vec<Standing>,
    preferred: usize,
    /// How often another server than before answered.
    pub(super) moved: u64,
}

impl Standings {
    pub(super) fn new(count: usize, first: usize) -> Self {
        Self { servers: vec![Standing::default(); count], preferred: first % count.max(1), moved: 0 }
    }

    /// The server to ask next, leaving some out, and when it may be asked; none when all are left out.
    pub(super) fn choose(&self, now: Instant, left_out: &[bool]) -> Option<(usize, Instant)> {
        let count = self.servers.len();
        let order = (0..count).map(|step| (self.preferred + step) % count);
        let open = order.filter(|&server| !left_out.get(server).copied().unwrap_or(false));
        // The first that may be asked now; else the one that may be asked soonest.
        open.map(|server| (server, self.servers[server].until.map_or(now, |until| until.max(now))))
            .min_by_key(|&(_, when)| when)
    }

    /// A server has answered.
    pub(super) fn good(&mut self, server: usize) {
        self.servers[server] = Standing::default();
        self.moved += u64::from(self.preferred != server);
        self.preferred = server;
    }

    /// A server has failed, or has too much to do; `jitter` from 0 to 1 keeps clients from asking all at once.
    pub(super) fn bad(&mut self, server: usize, words: String, now: Instant, jitter: f64) {
        let standing = &mut self.servers[server];
        let cool = COOL_MIN.saturating_mul(1 << standing.failures.min(6)).min(COOL_MAX);
        standing.failures += 1;
        standing.until = Some(now + cool.mul_f64(0.5 + jitter));
        standing.words = Some(words);
    }

    /// Whether a server has failed since it last answered.
    pub(super) fn is_down(&self, server: usize) -> bool {
        self.servers[server].failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_server_is_asked_until_it_fails_and_the_next_one_then() {
        let (now, all) = (Instant::now(), [false; 3]);
        let mut standings = Standings::new(3, 4);
        assert_eq!(standings.choose(now, &all), Some((1, now)));
        standings.bad(1, "gone".into(), now, 0.5);
        assert_eq!(standings.choose(now, &all), Some((2, now)));
        standings.good(2);
        assert_eq!(
            (standings.choose(now + COOL_MAX * 2, &all), standings.moved),
            (Some((2, now + COOL_MAX * 2)), 1)
        );
        assert_eq!(
            standings.choose(now, &[true, false, true]).map(|(server, when)| (server, when > now)),
            Some((1, true))
        );
        assert_eq!(standings.choose(now, &[true; 3]), None);
    }

    #[test]
    fn a_server_is_left_alone_longer_each_time_and_never_long() {
        let now = Instant::now();
        let mut standings = Standings::new(1, 0);
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            standings.bad(0, "gone".into(), now, 1.0);
            let wait = standings.choose(now, &[false]).unwrap().1 - now;
            assert!(wait >= last && wait <= COOL_MAX * 2);
            last = wait;
        }
        assert!(last >= COOL_MAX);
        standings.good(0);
        assert_eq!(standings.choose(now, &[false]), Some((0, now)));
    }
}
