//! How long a host may run ranks without being heard, computed without comparing clocks.
//!
//! A host sends heartbeat *n* and remembers when. The answer says: valid for *d* ms from when you sent *n*. The parent computes *d*
//! from the end of its own lease and the arrival of *n*, both on its own clock: since *n* arrived after it was sent, the child's
//! lease ends before the parent's does. The leader's own lease is what a majority of voters gave it, counted from when it *sent*
//! what they answered.

/// A lease must be longer than what a late packet takes.
pub const LEAST_MS: u64 = 2000;
/// What a lease is, unless somebody chooses.
pub const USUAL_MS: u64 = 30_000;

/// Between two heartbeats.
pub fn heartbeat_ms(lease_ms: u64) -> u64 {
    (lease_ms / 30).clamp(100, 1000)
}

/// A host that was not heard for so long is shown as unheard; nothing else follows from it.
pub fn unheard_ms(lease_ms: u64) -> u64 {
    heartbeat_ms(lease_ms) * 5 / 2
}

/// How long before the end of a lease ranks are ended.
pub fn margin_ms(lease_ms: u64) -> u64 {
    (lease_ms / 4).min(1000)
}

/// What whoever waits for the end of a lease adds to it: clocks agree within one per cent, on both sides.
pub fn slack_ms(lease_ms: u64) -> u64 {
    lease_ms / 50 + 1
}

/// What a parent grants: so long from when the heartbeat was sent that arrived then.
pub fn grant_ms(own_end_ms: u64, arrived_ms: u64) -> u64 {
    own_end_ms.saturating_sub(arrived_ms)
}

/// The end of the leader's own lease, of which each voter's newest answer belongs to what was sent then; nothing without a majority.
pub fn leader_end_ms(sent_ms: &[Option<u64>], lease_ms: u64) -> Option<u64> {
    let mut answered: Vec<u64> = sent_ms.iter().copied().flatten().collect();
    answered.sort_unstable_by(|a, b| b.cmp(a));
    let majority = sent_ms.len() / 2 + 1;
    Some(answered.get(majority - 1)?.saturating_add(lease_ms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_those_of_the_guide() {
        assert_eq!([2000, 6000, 30_000, 120_000].map(heartbeat_ms), [100, 200, 1000, 1000]);
        assert_eq!([2000, 30_000].map(margin_ms), [500, 1000]);
    }

    #[test]
    fn the_leader_has_what_the_majority_gave() {
        assert_eq!(leader_end_ms(&[Some(100)], 10), Some(110));
        assert_eq!(leader_end_ms(&[Some(100), None, Some(70)], 10), Some(80));
        assert_eq!(leader_end_ms(&[Some(100), None, None], 10), None);
    }

    proptest! {
        #[test]
        fn a_child_never_has_longer_than_its_parent(
            end in 0..100_000_u64, sent in 0..100_000_u64, on_the_way in 0..5000_u64, skew in 0..1_000_000_u64,
        ) {
            // The parent's clock shows `skew` more than the child's.
            let arrived = sent + skew + on_the_way;
            let childs_end = sent + grant_ms(end + skew, arrived);
            prop_assert!(childs_end <= end.max(sent));
        }
    }
}
