//! What this process has asked of stores and what became of it: counters and durations, process-wide, without locks.
//!
//! A child of a fork goes on from its parent's numbers; who wants its own subtracts what was there at its beginning.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_io::Histogram;

/// One number that only grows.
pub struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Every count, by name.
        pub struct Counts { $($(#[$doc])* pub $name: Count,)* }

        /// The counts of this process.
        pub static COUNTS: Counts = Counts { $($name: Count::new(),)* };

        impl Counts {
            /// Name and value of each.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counts! {
    /// Requests made, each try and each second request counted.
    requests,
    /// Bytes received in answers to reads.
    bytes_read,
    /// Bytes of objects sent.
    bytes_written,
    /// Tries after the first.
    retries,
    /// Second requests for slow reads.
    hedges,
    /// Second requests that were faster than the first.
    hedge_wins,
    /// Answers that asked us to slow down.
    throttled,
    /// Requests without an answer, or without progress, in time.
    timeouts,
    /// Objects found to be others than when they were opened.
    changed,
    /// Times that credentials were read again.
    credentials_reread,
    /// Pieces whose bytes were wrong and that were fetched again.
    corrupt_refetched,
    /// Pieces found in the cache of the host.
    cache_hits,
    /// Pieces not found there.
    cache_misses,
    /// Bytes written into it.
    cache_written_bytes,
    /// Pieces removed from it to make room.
    cache_evicted,
    /// Pieces in it whose bytes had rotted.
    cache_rotten,
    /// Pieces not kept because the disk was full.
    cache_skipped,
    /// Fetches that others had begun and that were waited for.
    flights_joined,
    /// Fetches of other processes that took so long that the piece was fetched a second time.
    flights_impatient,
    /// Bytes of pieces that came from their origins.
    pieces_fetched_bytes,
}

macro_rules! times {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Every measured duration, by name.
        pub struct Times { $($(#[$doc])* pub $name: Histogram,)* }

        /// The durations of this process.
        pub static TIMES: Times = Times { $($name: Histogram::new(),)* };

        impl Times {
            /// Name and histogram of each.
            pub fn all(&self) -> Vec<(&'static str, &Histogram)> {
                vec![$((stringify!($name), &self.$name),)*]
            }
        }
    };
}

times! {
    /// From asking to the head of the answer.
    answer,
    /// From asking to the last byte of one part.
    read,
    /// From sending a part to its receipt.
    write,
    /// Waiting for one of the requests that a client may have under way, and for its rates.
    turn,
    /// Pauses before further tries.
    pause,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_own_names() {
        let before = COUNTS.cache_rotten.get();
        COUNTS.cache_rotten.add(2);
        let all = COUNTS.all();
        assert!(all.contains(&("cache_rotten", before + 2)));
        assert_eq!(
            all.len(),
            all.iter().map(|(name, _)| name).collect::<std::collections::BTreeSet<_>>().len()
        );
        assert!(TIMES.all().iter().any(|(name, _)| *name == "answer"));
    }
}
