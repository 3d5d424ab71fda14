//! The clock of one imagined host: it began at some other moment than the world's and runs a little faster or slower.

/// A host's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostClock {
    pub(crate) ahead_ms: u64,
    /// How much faster than the world's, in parts of a million.
    pub(crate) drift_ppm: i64,
}

impl HostClock {
    /// What it shows at a moment of the world.
    pub(crate) fn local_ms(self, world_ms: u64) -> u64 {
        let drift = i128::from(world_ms) * i128::from(self.drift_ppm) / 1_000_000;
        (i128::from(world_ms) + drift + i128::from(self.ahead_ms)).max(0) as u64
    }

    /// The first moment of the world at which it shows at least this.
    pub(crate) fn world_ms(self, local_ms: u64) -> u64 {
        let since = i128::from(local_ms) - i128::from(self.ahead_ms);
        let mut world = (since * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm))).max(0) as u64;
        while self.local_ms(world) < local_ms {
            world += 1;
        }
        world
    }
}
