//! Ballots that are higher than the leader's and lead nowhere.
//!
//! A host that asks for votes and is then cut off or restarted leaves behind voters that promised its ballot. If a
//! majority follows a leader with a lower one, all are content and those few are left out for ever. A leader that sees
//! so for some rounds asks again with a ballot of its own that is higher. Without a majority it does not: otherwise two
//! hosts that cannot hear each other would take the lead from each other again and again.

use std::collections::BTreeMap;

use omnipaxos::ballot_leader_election::Ballot;

use super::group::ELECTION_TICKS;

/// Rounds for which a voter has to be left out.
const ROUNDS: u32 = 3;

/// What the other voters said about their leader last, and when.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    heard: BTreeMap<u64, (u64, Ballot)>,
    rounds: u32,
}

impl Rivals {
    /// A voter follows this ballot.
    pub(super) fn hear(&mut self, host: u64, now: u64, leader: Ballot) {
        self.heard.insert(host, (now, leader));
    }

    /// Another configuration begins.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// At the end of a round: whether the leader with this ballot should ask again.
    pub(super) fn is_time(&mut self, now: u64, mine: Ballot, voters: usize) -> bool {
        let fresh = self.heard.values().filter(|(at, _)| at + 2 * ELECTION_TICKS > now);
        let are_behind: Vec<bool> = fresh.map(|(_, leader)| *leader <= mine).collect();
        let following = 1 + are_behind.iter().filter(|is_behind| **is_behind).count();
        if following == 1 + are_behind.len() || following <= voters / 2 {
            self.rounds = 0;
            return false;
        }
        self.rounds += 1;
        let is_time = self.rounds >= ROUNDS;
        if is_time {
            self.rounds = 0;
        }
        is_time
    }
}
