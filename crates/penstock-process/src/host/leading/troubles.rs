//! What people should mend on a host although the job goes on: found by the host itself, written down by the leader.

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::leading::Leading;
use crate::job::state::wall_s;
use crate::vote::storage::VoteStorage;

/// Clocks that agree better than this are no trouble.
const CLOCK_MS: i64 = 60_000;
/// Lines about troubles that a leader writes down; a host that is well and not by turns must not fill the journal.
const TOLD_MAX: u32 = 200;

impl<S: VoteStorage> Host<S> {
    /// What makes the coordinator's time this host's time of day, in ms since 1970.
    pub(in crate::host) fn wall_offset_ms(&self) -> i64 {
        let coordinator_ms = i64::try_from(self.clock.coordinator_ms(self.now_ms)).unwrap_or(i64::MAX);
        ((wall_s() * 1000.0) as i64).saturating_sub(coordinator_ms)
    }

    /// What is wrong here.
    pub(in crate::host) fn own_troubles(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(problem) = self.voter.as_ref().and_then(|voter| voter.group.failure()) {
            found.push(problem.to_string());
        }
        let leader_ms = self.orders.as_ref().map(|orders| orders.wall_ms).filter(|wall_ms| *wall_ms != 0);
        let ahead_ms = leader_ms.map_or(0, |leader_ms| self.wall_offset_ms().saturating_sub(leader_ms));
        if ahead_ms.abs() >= CLOCK_MS {
            let minutes = (ahead_ms.abs() + CLOCK_MS / 2) / CLOCK_MS;
            let way = if ahead_ms > 0 { "ahead of" } else { "behind" };
            found.push(format!(
                "its clock is {minutes} min {way} the leader's; leases do not mind, but times in its logs are wrong (set it by NTP)"
            ));
        }
        found
    }

    /// What changed, as lines for the journal.
    pub(in crate::host) fn facts_of_troubles(&self, leading: &mut Leading) -> Vec<Value> {
        let troubles = &self.below.merged.troubles;
        if *troubles == leading.troubles || leading.told >= TOLD_MAX {
            return Vec::new();
        }
        let list = &self.membership.list;
        // Who is not heard may be as ill as before.
        let heard = |rank: &u32| self.below.merged.hosts.contains(*rank);
        let news = troubles.news(&leading.troubles).filter(|(rank, _)| heard(rank));
        let facts: Vec<Value> = news
            .filter_map(|(rank, what)| {
                let host = &list.host(rank)?.name;
                Some(json!({"event": "trouble", "host": host, "host_rank": rank, "what": what}))
            })
            .collect();
        leading.troubles = troubles.clone();
        leading.told += u32::try_from(facts.len()).unwrap_or(u32::MAX);
        facts
    }
}
