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

/// A host that no renewal has reached for so long since its last heartbeat sends the next one by itself. Else the renewal asks for it,
/// so that a host wakes once for both.
pub fn unasked_ms(lease_ms: u64) -> u64 {
    heartbeat_ms(lease_ms) * 5 / 4
}

/// A host that was not heard for so long is shown as unheard; nothing else follows from it.
pub fn unheard_ms(lease_ms: u64) -> u64 {
    heartbeat_ms(lease_ms) * 5 / 2
}

/// How many heartbeats of a host are missing that was heard so long ago; none of one whose next may still be on its way.
pub fn late_beats(age_ms: u64, lease_ms: u64) -> f64 {
    let beat_ms = heartbeat_ms(lease_ms);
    // Half a beat more than a host takes that no renewal has reached: networks and schedulers take their time, too.
    if age_ms < unasked_ms(lease_ms) + beat_ms / 2 {
        return 0.0;
    }
    (age_ms - beat_ms) as f64 / beat_ms as f64
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

/// The end of a lease on the clock of who got it: granted now, for so long from when a heartbeat was sent. The older that is, the more
/// the two clocks may differ about it, so 2 % of its age are left out; and nobody has more than a whole lease.
pub fn end_ms(sent_ms: u64, granted_ms: u64, now_ms: u64, lease_ms: u64) -> u64 {
    let age_ms = now_ms.saturating_sub(sent_ms);
    let end_ms = sent_ms.saturating_add(granted_ms).saturating_sub(age_ms.div_ceil(50));
    end_ms.min(now_ms.saturating_add(lease_ms))
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
    fn a_host_is_late_before_it_is_unheard_and_never_while_its_next_heartbeat_is_on_its_way() {
        for lease_ms in [2000, 6000, 30_000, 600_000] {
            assert!(late_beats(unasked_ms(lease_ms) + heartbeat_ms(lease_ms) / 2 - 1, lease_ms) == 0.0);
            assert!((1.0..2.0).contains(&late_beats(unheard_ms(lease_ms), lease_ms)));
        }
        assert!((late_beats(5000, 30_000) - 4.0).abs() < 1e-9);
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

        #[test]
        fn a_heartbeat_that_was_answered_late_gives_no_more_than_one_that_was_answered_at_once(
            // How fast the two clocks go, in thousandths of time.
            child in 990..=1010_u64, parent in 990..=1010_u64, waited in 0..30_000_u64, on_the_way in 0..500_u64, rest in 0..30_000_u64,
        ) {
            let (childs, parents) = (|ms: u64| ms * child / 1000, |ms: u64| ms * parent / 1000);
            // All begins when the heartbeat is sent; the parent's lease ends so long after its answer.
            let answered = on_the_way + waited;
            let granted = grant_ms(parents(answered) + rest, parents(on_the_way));
            let end = end_ms(0, granted, childs(answered), 30_000);
            // Sent so late that it need not wait, the same heartbeat would have brought this.
            let at_once = waited + rest * 1000 / child;
            prop_assert!(end * 1000 / child <= at_once + waited / 1000 + 3, "{end} {granted} {at_once}");
        }
    }
}
