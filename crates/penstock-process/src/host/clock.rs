//! The coordinator's time as one host knows it: its own clock and an offset. The founder's offset is 0. Others hear its time with
//! the list of hosts and then, better, with grants; a leader that takes over goes on with its own: so the time of a job never jumps,
//! whoever leads.

use serde::{Deserialize, Serialize};

/// Half the round trip is how wrong an estimate may be. A better one replaces it; an old one counts for less and less.
const AGE_PENALTY_PER_S: u64 = 1;
/// Of the time that an answer waited, two clocks may see such a share differently.
const DRIFT_SHARE: u64 = 100;
/// How wrong an offset may be that was written down: the next answer is better.
const KEPT_ERROR_MS: u64 = 1000;

/// The coordinator's time on one host.
#[derive(Debug, Clone, Copy, Default)]
pub struct CoordinatorClock {
    offset_ms: i64,
    /// How wrong the offset may be, and when it was measured; nothing for who has not measured any.
    known: Option<(u64, u64)>,
}

/// What a parent says of its clock in an answer.
#[derive(Debug, Clone, Copy)]
pub struct ParentClock {
    /// What it showed when the answer left.
    pub coordinator_ms: u64,
    /// How long the question had been there.
    pub waited_ms: u64,
    /// How wrong it may be.
    pub within_ms: u64,
}

impl CoordinatorClock {
    /// The clock of who founds the job, or leads one that was not founded: its own.
    pub fn own() -> Self {
        Self { offset_ms: 0, known: Some((0, 0)) }
    }

    /// A clock that was known before, as of now.
    pub fn with_offset(offset_ms: i64, now_ms: u64) -> Self {
        Self { offset_ms, known: Some((KEPT_ERROR_MS, now_ms)) }
    }

    /// A clock that was told without a question, so nobody knows how long that took.
    pub fn as_heard(coordinator_ms: u64, now_ms: u64) -> Self {
        let [there_ms, here_ms] = [coordinator_ms, now_ms].map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        Self::with_offset(there_ms - here_ms, now_ms)
    }

    /// The coordinator's time at a moment of this host.
    pub fn coordinator_ms(&self, local_ms: u64) -> u64 {
        local_ms.saturating_add_signed(self.offset_ms)
    }

    /// What to add to moments of this host.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    /// A moment of the coordinator's time on this host's clock.
    pub fn local_ms(&self, coordinator_ms: u64) -> u64 {
        coordinator_ms.saturating_add_signed(-self.offset_ms)
    }

    /// How wrong moments of this host may be in the coordinator's time: what was measured on the edge to the parent, and all above it.
    pub fn within_ms(&self) -> u64 {
        self.known.map_or(0, |(error_ms, _)| error_ms)
    }

    /// A grant came: asked then, answered now, and when the parent answered, its clock showed this, which may be wrong itself. It had
    /// waited with that for so long, as its own clock says.
    pub fn note(&mut self, sent_ms: u64, now_ms: u64, shown: ParentClock) {
        let ParentClock { coordinator_ms, waited_ms, within_ms } = shown;
        let half_ms = now_ms.saturating_sub(sent_ms).saturating_sub(waited_ms).div_ceil(2);
        let error_ms = half_ms.saturating_add(waited_ms / DRIFT_SHARE).saturating_add(within_ms);
        let age_ms = |at_ms: u64| now_ms.saturating_sub(at_ms) / 1000 * AGE_PENALTY_PER_S;
        if self.known.is_some_and(|(known_ms, at_ms)| known_ms.saturating_add(age_ms(at_ms)) < error_ms) {
            return;
        }
        let here_ms = now_ms - half_ms;
        self.offset_ms =
            i64::try_from(coordinator_ms).unwrap_or(i64::MAX) - i64::try_from(here_ms).unwrap_or(0);
        self.known = Some((error_ms, now_ms));
    }

    /// Whether anything is known.
    pub fn is_set(&self) -> bool {
        self.known.is_some()
    }
}

/// What is known about the clock of a host, as incidents have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostClock {
    /// What to add to moments since its start to have the coordinator's.
    pub offset_ms: i64,
    /// How wrong that may be.
    pub within_ms: u64,
    /// What makes the coordinator's time its time of day, in ms since 1970: on hosts whose clocks are right the same.
    pub wall_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(coordinator_ms: u64, waited_ms: u64, within_ms: u64) -> ParentClock {
        ParentClock { coordinator_ms, waited_ms, within_ms }
    }

    #[test]
    fn an_answer_that_waited_is_nearly_as_good_as_a_quick_one() {
        let mut clock = CoordinatorClock::default();
        clock.note(1000, 2010, shown(6005, 1000, 0));
        assert_eq!(clock.coordinator_ms(2010), 6010, "half of the ten that it was on the way");
        clock.note(3000, 3018, shown(7020, 0, 0));
        assert_eq!(clock.coordinator_ms(3009), 7020, "better than one that may be wrong by its wait");
    }

    #[test]
    fn the_quickest_answer_counts_until_it_is_old() {
        let mut clock = CoordinatorClock::default();
        clock.note(1000, 1100, shown(5050, 0, 0));
        assert_eq!(clock.coordinator_ms(1050), 5050);
        clock.note(2000, 2010, shown(6003, 0, 0));
        assert_eq!(clock.coordinator_ms(2005), 6003);
        clock.note(3000, 3500, shown(9000, 0, 0));
        assert_eq!(clock.coordinator_ms(2005), 6003, "slower and hardly newer");
        clock.note(400_000, 400_400, shown(404_198, 0, 0));
        assert_eq!(
            (clock.local_ms(404_198), clock.within_ms()),
            (400_200, 200),
            "slower, but the other is old"
        );
        clock.note(400_500, 400_502, shown(404_497, 0, 300));
        assert_eq!(clock.within_ms(), 200, "quicker, but the parent's own is worse");
    }
}
