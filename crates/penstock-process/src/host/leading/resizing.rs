//! When the leader changes the size of the gang: between two lives, when nothing of the job runs and everybody is heard or lost.

use std::collections::BTreeSet;

use crate::host::Host;
use crate::host::leading::Leading;
use crate::host::leading::sizes::{Change, Crew};
use crate::host::voting::Resize;
use crate::lease::host_state::HostState;
use crate::tree::host_list::HostEntry;
use crate::tree::summary::LifeSummary;
use crate::vote::storage::VoteStorage;

impl<S: VoteStorage> Host<S> {
    /// Another size of the gang, once the host list is changed like this.
    pub(super) fn resize(
        &self,
        leading: &Leading,
        lost: &[u32],
        back: &[u32],
        placed: &[(u32, HostEntry)],
    ) -> Option<Resize> {
        let list = &self.membership.list;
        let mut vacant: BTreeSet<u32> = list.vacant.iter().chain(lost).copied().collect();
        let filled = |rank: &u32| back.contains(rank) || placed.iter().any(|(place, _)| place == rank);
        vacant.retain(|rank| !filled(rank));
        let change = self.other_size(leading, &vacant)?;
        let quiet = self.is_settled(leading) && self.is_still();
        if !quiet || !leading.decider.is_between_lives() {
            return None;
        }
        let name = |rank: u32| {
            let placed = placed.iter().find(|(place, _)| *place == rank).map(|(_, entry)| entry);
            placed.or_else(|| list.host(rank)).map(|entry| entry.name.clone()).unwrap_or_default()
        };
        let (why, at_ms) = (change.words(&name), self.clock.coordinator_ms(self.now_ms));
        Some(Resize { resting: change.resting, at_ms, why })
    }

    /// Whether a life that was ordered cannot begin, because the gang is about to get smaller.
    pub(super) fn shrinks(&self, leading: &Leading) -> bool {
        let change = self.other_size(leading, &self.membership.list.vacant);
        change.is_some_and(|change| change.sizes.1 < change.sizes.0 || !change.takes_over.is_empty())
    }

    /// Whether the next life has another size, as soon as the one before is gone. Nobody waits for a host that is unheard.
    pub(super) fn resizes(&self, leading: &Leading) -> bool {
        self.other_size(leading, &self.membership.list.vacant).is_some() && self.is_settled(leading)
    }

    /// What a life that runs is to make room for, in words; nothing where the job waits for its next restart, or for more time.
    pub(super) fn grows(&self, leading: &Leading) -> Option<String> {
        let list = &self.membership.list;
        if !self.config.grow_saved || list.resting.is_empty() {
            return None;
        }
        let change = self.other_size(leading, &list.vacant).filter(|_| self.is_settled(leading))?;
        let here = |rank: u32| {
            let track = leading.tracks.get(rank as usize)?;
            (track.state == HostState::Here && track.covered).then_some(track.since_ms)
        };
        let begun = leading.decider.history().gangs.iter().filter_map(|history| history.prepared_ms).max()?;
        let at_ms = change.grows_at_ms(&here, self.clock.local_ms(begun), self.config.lease_ms)?;
        let name = |rank: u32| list.host(rank).map(|entry| entry.name.clone()).unwrap_or_default();
        (self.now_ms >= at_ms).then(|| change.words(&name))
    }

    /// When a host rank of the gang was last filled. Who takes one that the gang goes without ends no life.
    pub(super) fn filled_ms(&self, leading: &Leading) -> u64 {
        let list = &self.membership.list;
        if list.resting.is_empty() {
            return leading.filled_ms;
        }
        let stands = |(rank, _): &(&u32, &u64)| !list.resting.contains(*rank);
        leading.filled.iter().filter(stands).map(|(_, at_ms)| *at_ms).max().unwrap_or(0)
    }

    fn other_size(&self, leading: &Leading, vacant: &BTreeSet<u32>) -> Option<Change> {
        let (list, config) = (&self.membership.list, &self.config);
        if config.sizes.is_empty() {
            return None;
        }
        let missing = vacant.iter().filter(|rank| !list.resting.contains(rank));
        let since = missing.filter_map(|rank| leading.tracks.get(*rank as usize)).map(|track| track.since_ms);
        let waited = since.max().is_some_and(|since_ms| {
            // The youngest: who is lost while another is waited for is waited for as well.
            self.now_ms >= since_ms.saturating_add(config.replace_within_ms)
        });
        let racks = |rank: u32| list.host(rank).map_or("", |entry| entry.rack.as_str());
        let crew = Crew {
            places: list.len(),
            vacant,
            resting: &list.resting,
            sizes: &config.sizes,
            waited,
            racks: &racks,
        };
        crew.decide()
    }

    /// Whether every host is heard or lost.
    fn is_settled(&self, leading: &Leading) -> bool {
        let settled = |rank: &u32| {
            let track = leading.tracks.get(*rank as usize);
            track.is_some_and(|track| match track.state {
                HostState::Unkillable => self.below.merged.quiet.contains(*rank),
                state => track.covered || state.is_over() || Some(*rank) == self.rank,
            })
        };
        leading.unsettled.iter().all(settled)
    }

    /// Whether no host that is heard has a process of the job.
    fn is_still(&self) -> bool {
        let still = |life: &LifeSummary| life.running == 0 && life.orphans == 0;
        self.below.merged.gangs.iter().flat_map(|gang| &gang.lives).all(still)
    }
}
