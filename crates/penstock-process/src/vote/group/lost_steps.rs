//! Steps of the log that never came, and those that came to nothing.

use super::{RESEND_TICKS, VoterGroup};
use crate::vote::message::VoteBody;
use crate::vote::storage::VoteStorage;

/// For how long something may be proposed and not decided, before logs are compared again.
const STUCK_TICKS: u64 = 3 * RESEND_TICKS;

/// What a leader proposed that is not decided.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    /// How much was decided when that was seen first, or said last.
    since: Option<(usize, u64)>,
}

impl Undecided {
    /// Whether nothing has moved for too long; counted anew after each such answer.
    fn is_stuck(&mut self, decided: usize, accepted: usize, now: u64) -> bool {
        if decided == accepted {
            self.since = None;
            return false;
        }
        match self.since {
            Some((known, at)) if known == decided && now < at + STUCK_TICKS => false,
            before => {
                self.since = Some((decided, now));
                before.is_some_and(|(known, _)| known == decided)
            }
        }
    }
}

impl<S: VoteStorage> VoterGroup<S> {
    /// Steps that never came: a follower asks its leader to begin again, a leader tells its follower to ask.
    pub(super) fn mend_losses(&mut self) {
        let leader = self.leader();
        for host in self.sessions.lossy() {
            let place = self.ledger.lock().configuration.as_ref().and_then(|known| known.place_of(host));
            match place {
                Some(_) if leader == Some(self.me) => self.say(host, VoteBody::Lost),
                Some(place) => {
                    self.sessions.mend(host);
                    if leader == Some(host) {
                        self.resync(place);
                    }
                }
                None => self.sessions.mend(host),
            }
        }
    }

    /// Where two comparisons of logs cross, the leader takes a follower for one that has its newest step, and the follower drops that step;
    /// the library notices with the next one, which never comes while this one is not decided. So followers are asked to begin again.
    pub(super) fn wake_followers(&mut self) {
        let (decided, accepted, others) = {
            let ledger = self.ledger.lock();
            let voters = ledger.configuration.as_ref().map_or(Vec::new(), |known| known.voters.clone());
            (ledger.decided, ledger.accepted_count(), voters)
        };
        if self.is_leader() && self.undecided.is_stuck(decided, accepted, self.ticks) {
            let me = self.me;
            others.into_iter().filter(|voter| *voter != me).for_each(|voter| self.say(voter, VoteBody::Lost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_move_is_told_once_in_a_while() {
        let mut undecided = Undecided::default();
        let told: Vec<u64> = (0..100).filter(|tick| undecided.is_stuck(3, 4, *tick)).collect();
        assert_eq!(told, [15, 30, 45, 60, 75, 90]);
        assert!(!undecided.is_stuck(4, 5, 101), "it has moved");
        assert!(!undecided.is_stuck(5, 5, 102));
        assert!(!undecided.is_stuck(5, 6, 200), "and that is new");
    }
}
