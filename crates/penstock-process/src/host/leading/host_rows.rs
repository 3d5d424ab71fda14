//! What the leader tells about hosts: about all of them, or only about those that are not settled, so that whoever looks again and again
//! asks for little. A host that is not told about is here and heard.

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::leading::{Leading, Track};
use crate::lease::grant;
use crate::lease::host_state::HostState;
use crate::tree::host_list::HostEntry;
use crate::vote::storage::VoteStorage;

impl<S: VoteStorage> Host<S> {
    /// All hosts, those that wait for a place last.
    pub(in crate::host) fn rows_of_hosts(&self, leading: &Leading) -> Vec<Value> {
        let all = (0..self.membership.list.len()).filter_map(|rank| self.host_row(leading, rank));
        all.chain(leading.joiner_rows()).collect()
    }

    /// Those that are not both here and heard on time, and those that wait for a place.
    pub(in crate::host) fn rows_of_unsettled(&self, leading: &Leading) -> Vec<Value> {
        let list = &self.membership.list;
        let late = self.below.ages(self.now_ms).filter(|(_, age_ms)| self.late_beats(*age_ms) > 0.0);
        let late = late.filter_map(|(host, _)| list.rank_of(host));
        let mut ranks: Vec<u32> = leading.unsettled.iter().copied().chain(late).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let rows = ranks.into_iter().filter_map(|rank| self.host_row(leading, rank));
        rows.chain(leading.joiner_rows()).collect()
    }

    fn host_row(&self, leading: &Leading, rank: u32) -> Option<Value> {
        let list = &self.membership.list;
        let (entry, track) = (list.host(rank)?, leading.tracks.get(rank as usize)?);
        let rests = list.resting.contains(&rank) && track.state == HostState::Here;
        let state = if rests { HostState::Spare } else { track.state };
        Some(json!({
            "rank": rank, "name": entry.name, "address": entry.address.to_string(), "state": state,
            "since_s": seconds(self.now_ms.saturating_sub(track.since_ms)), "slots": entry.slots, "rack": entry.rack,
            "trouble": leading.words_about(rank), "voter": list.voters.contains(&entry.id),
            "first_rank": list.first_rank(rank), "late_beats": self.lateness(entry, track),
            "lease_left_s": self.lease_left_ms(track).map(seconds),
        }))
    }

    /// How many heartbeats of a host are missing. Of one that reports to another host that is known only once it is not counted any more,
    /// and until then nothing is said of it.
    fn lateness(&self, entry: &HostEntry, track: &Track) -> Option<f64> {
        if entry.id == self.me.id || track.state.is_over() {
            return Some(0.0);
        }
        if !track.covered {
            let lost_ms = self.now_ms.saturating_sub(track.lost_ms);
            return Some(self.late_beats(lost_ms + grant::unheard_ms(self.config.lease_ms)));
        }
        self.below.age_ms(entry.id, self.now_ms).map(|age_ms| self.late_beats(age_ms))
    }

    fn late_beats(&self, age_ms: u64) -> f64 {
        (grant::late_beats(age_ms, self.config.lease_ms) * 10.0).floor() / 10.0
    }

    /// How long a host may still run ranks, at most: every lease ends with the leader's own, and that of a host that is not counted
    /// when it may be called expired.
    fn lease_left_ms(&self, track: &Track) -> Option<u64> {
        if track.state.is_over() {
            return None;
        }
        let end_ms = if track.covered { self.lease_end_ms? } else { track.expires_ms };
        Some(end_ms.saturating_sub(self.now_ms))
    }
}

impl Leading {
    /// Hosts without a host rank.
    fn joiner_rows(&self) -> impl Iterator<Item = Value> {
        self.joiners.values().map(|(request, _)| {
            let state = if request.stuck { HostState::Unkillable } else { HostState::Spare };
            json!({
                "rank": null, "name": request.entry.name, "address": request.entry.address.to_string(), "state": state,
                "rack": request.entry.rack,
            })
        })
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
