//! With how many hosts a job goes on when hosts are lost and others come (P1): a pure function, with a reason.
//!
//! A host rank that is lost goes to a spare, one of its rack first. Where there is none, another host is waited for; then the gang goes
//! on with the largest size that it may have. Who stands in the gang stays there, and nobody moves in the list: host ranks that the
//! gang goes without *rest*. A host that rests is a spare like any other. When enough hosts are here again the gang grows.

use std::collections::BTreeSet;

/// What a decision about the size follows from.
#[derive(Clone)]
pub struct Crew<'a> {
    /// Host ranks that there are.
    pub places: u32,
    /// Those without a host.
    pub vacant: &'a BTreeSet<u32>,
    /// Those that the gang goes without.
    pub resting: &'a BTreeSet<u32>,
    /// Sizes that the gang may have.
    pub sizes: &'a [u32],
    /// Nobody comes any more, or has not come for too long.
    pub waited: bool,
    /// Each host's rack, by host rank.
    pub racks: &'a dyn Fn(u32) -> &'a str,
}

/// Another set of host ranks that rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// These.
    pub resting: BTreeSet<u32>,
    /// Of those that rested, who stands in the gang from now on.
    pub takes_over: Vec<u32>,
    /// How many hosts the gang had, and has.
    pub sizes: (u32, u32),
}

impl Change {
    /// From when on a life that runs may be asked to make room for a larger size: whoever takes part from then on has been here for so
    /// long, and so has the life. A host that comes and goes ends none. Nothing for a size that is not larger.
    pub fn grows_at_ms(
        &self,
        here_since_ms: &dyn Fn(u32) -> Option<u64>,
        begun_ms: u64,
        wait_ms: u64,
    ) -> Option<u64> {
        if self.sizes.1 <= self.sizes.0 {
            return None;
        }
        let youngest = self.takes_over.iter().map(|rank| here_since_ms(*rank));
        let since_ms = youngest.collect::<Option<Vec<u64>>>()?.into_iter().fold(begun_ms, u64::max);
        Some(since_ms.saturating_add(wait_ms))
    }

    /// In words; hosts are called as people call them.
    pub fn words(&self, name: &dyn Fn(u32) -> String) -> String {
        let (before, after) = self.sizes;
        let named = |ranks: &[u32]| {
            let some: Vec<String> = ranks.iter().take(4).map(|rank| name(*rank)).collect();
            let more = ranks.len().saturating_sub(some.len());
            if more > 0 { format!("{} and {more} more", some.join(", ")) } else { some.join(", ") }
        };
        match (before == after, self.takes_over.is_empty()) {
            (true, _) => format!("has {} in place of who was lost", named(&self.takes_over)),
            (false, true) => format!("goes on with {after} hosts instead of {before}"),
            (false, false) => {
                format!(
                    "goes on with {after} hosts instead of {before}; {} among them",
                    named(&self.takes_over)
                )
            }
        }
    }
}

impl Crew<'_> {
    /// What to change, if anything.
    pub fn decide(&self) -> Option<Change> {
        let here = self.places.saturating_sub(count(self.vacant));
        let before = self.places.saturating_sub(count(self.resting));
        let missing = self.vacant.difference(self.resting).count();
        let size = if missing == 0 {
            self.largest(here).filter(|size| *size > before)?
        } else if here >= before {
            before
        } else {
            self.largest(here).filter(|_| self.waited)?
        };
        let resting = self.rest(size);
        let takes_over = self.resting.difference(&resting).copied().collect();
        Some(Change { resting, takes_over, sizes: (before, size) })
    }

    fn largest(&self, here: u32) -> Option<u32> {
        self.sizes.iter().copied().filter(|size| *size <= here).max()
    }

    /// Who rests in a gang of a size: whoever has no host, and of the others as many as are too many. Who stands in the gang stays, then
    /// come those whose rack lost a host, then the first.
    fn rest(&self, size: u32) -> BTreeSet<u32> {
        let lost: BTreeSet<&str> =
            self.vacant.difference(self.resting).map(|rank| (self.racks)(*rank)).collect();
        let mut here: Vec<u32> = (0..self.places).filter(|rank| !self.vacant.contains(rank)).collect();
        here.sort_by_key(|rank| {
            let rests = self.resting.contains(rank);
            (rests, rests && !lost.contains((self.racks)(*rank)), *rank)
        });
        let stays: BTreeSet<u32> = here.into_iter().take(size as usize).collect();
        (0..self.places).filter(|rank| !stays.contains(rank)).collect()
    }
}

fn count(ranks: &BTreeSet<u32>) -> u32 {
    u32::try_from(ranks.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decide(places: u32, vacant: &[u32], resting: &[u32], sizes: &[u32], waited: bool) -> Option<Change> {
        let (vacant, resting) = (vacant.iter().copied().collect(), resting.iter().copied().collect());
        let racks = |rank: u32| if rank % 2 == 0 { "even" } else { "odd" };
        let crew = Crew { places, vacant: &vacant, resting: &resting, sizes, waited, racks: &racks };
        crew.decide()
    }

    fn resting(change: Option<Change>) -> Option<Vec<u32>> {
        change.map(|change| change.resting.into_iter().collect())
    }

    #[test]
    fn nothing_changes_without_need() {
        assert_eq!(decide(4, &[], &[], &[2, 4], true), None);
        assert_eq!(decide(4, &[3], &[3], &[2, 3, 4], true), None);
        assert_eq!(decide(4, &[2, 3], &[2, 3], &[2, 4], true), None);
    }

    #[test]
    fn a_lost_host_is_waited_for_before_the_gang_gets_smaller() {
        assert_eq!(decide(4, &[1], &[], &[2, 4], false), None);
        assert_eq!(resting(decide(4, &[1], &[], &[2, 4], true)), Some(vec![1, 3]));
        assert_eq!(resting(decide(4, &[1], &[], &[2, 3, 4], true)), Some(vec![1]));
        assert_eq!(decide(4, &[0, 1, 2], &[], &[2, 4], true), None);
    }

    #[test]
    fn who_rests_is_a_spare_and_takes_over_at_once() {
        let change = decide(6, &[1], &[4, 5], &[4], false).expect("a spare takes over");
        assert_eq!((change.takes_over.clone(), change.sizes), (vec![5], (4, 4)), "of the same rack");
        assert_eq!(change.words(&|rank| format!("gpu{rank}")), "has gpu5 in place of who was lost");
        // Two spares for three that were lost: first they are waited for.
        assert_eq!(decide(6, &[0, 1, 2], &[4, 5], &[2, 4], false), None);
        let change = decide(6, &[0, 1, 2], &[4, 5], &[2, 3, 4], true).expect("smaller, with both");
        assert_eq!(change.takes_over, [4, 5]);
        assert_eq!(
            change.words(&|rank| format!("gpu{rank}")),
            "goes on with 3 hosts instead of 4; gpu4, gpu5 among them"
        );
    }

    #[test]
    fn the_gang_grows_when_enough_are_here() {
        assert_eq!(resting(decide(4, &[], &[1, 3], &[2, 4], false)), Some(vec![]));
        assert_eq!(decide(4, &[1], &[1, 3], &[2, 4], false), None);
    }

    #[test]
    fn a_life_makes_room_when_all_have_been_here_for_a_while() {
        let grown = decide(4, &[], &[1, 3], &[2, 4], false).expect("enough are here");
        let since = |rank: u32| Some(u64::from(rank) * 1000);
        assert_eq!(grown.grows_at_ms(&since, 500, 2000), Some(5000), "the youngest of those who come");
        assert_eq!(grown.grows_at_ms(&since, 9000, 2000), Some(11_000), "the life is younger");
        assert_eq!(
            grown.grows_at_ms(&|rank| since(rank).filter(|_| rank != 3), 0, 2000),
            None,
            "one is not heard"
        );
        let shrunk = decide(4, &[1], &[], &[2, 4], true).expect("smaller");
        assert_eq!(shrunk.grows_at_ms(&since, 0, 0), None);
    }

    proptest! {
        /// Whatever is lost: the size is one that is allowed and the largest that there are hosts for, nobody without a host stands in the
        /// gang, who stood in it and is here stays while the size allows it, and a second look changes nothing.
        #[test]
        fn sizes_are_allowed_and_nobody_moves_without_need(
            places in 1..40u32, lost in proptest::collection::btree_set(0..40u32, 0..20),
            before in proptest::collection::btree_set(0..40u32, 0..20),
            sizes in proptest::collection::btree_set(1..40u32, 1..6), waited: bool,
        ) {
            let within = |ranks: BTreeSet<u32>| -> BTreeSet<u32> { ranks.into_iter().filter(|rank| *rank < places).collect() };
            let (vacant, resting) = (within(lost), within(before));
            let sizes: Vec<u32> = sizes.into_iter().filter(|size| *size <= places).collect();
            let racks = |_: u32| "";
            let crew = Crew { places, vacant: &vacant, resting: &resting, sizes: &sizes, waited, racks: &racks };
            let Some(change) = crew.decide() else { return Ok(()) };
            let (size_before, size) = change.sizes;
            prop_assert_eq!(places as usize - change.resting.len(), size as usize);
            prop_assert!(vacant.is_subset(&change.resting));
            prop_assert!(sizes.contains(&size) || size == size_before);
            prop_assert!(waited || size >= size_before);
            let stood = (0..places).filter(|rank| !vacant.contains(rank) && !resting.contains(rank));
            let sent_away = stood.filter(|rank| change.resting.contains(rank)).count();
            prop_assert!(sent_away == 0 || change.takes_over.is_empty());
            let again = Crew { resting: &change.resting, ..crew };
            prop_assert!(again.decide().is_none_or(|next| next.sizes.1 > size), "{:?}", again.decide());
        }
    }
}
