//! The clock of one imagined host: it began at some other moment than the world's and runs a little faster or slower.

/// A host's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostClock {
    pub(crate) ahead_ms: u64,
    /// How much faster than the world's, in parts of a million.
    pub(crate) drift_ppm: i64,
    /// How long the machine was paused from outside: its clock stood still, and nobody told it.
    pub(crate) stood_ms: u64,
}

impl HostClock {
    /// What it shows at a moment of the world.
    pub(crate) fn local_ms(self, world_ms: u64) -> u64 {
        let ran = world_ms.saturating_sub(self.stood_ms) as i64;
        (ran + ran * self.drift_ppm / 1_000_000 + self.ahead_ms as i64).max(0) as u64
    }

    /// The first moment of the world at which it shows at least this.
    pub(crate) fn world_ms(self, local_ms: u64) -> u64 {
        let since = (local_ms as i64).saturating_sub(self.ahead_ms as i64).min(i64::MAX / 2_000_000);
        let ran = (since * 1_000_000 / (1_000_000 + self.drift_ppm)).max(0) as u64;
        let mut world = ran + self.stood_ms;
        while self.local_ms(world) < local_ms.min(i64::MAX as u64 / 2_000_000) {
            world += 1;
        }
        world
    }
}
