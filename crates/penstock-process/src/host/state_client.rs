//! What a host has done in the state directory: founding a job only where no other lives, breaking the tie of two hosts that lost each
//! other, and keeping a copy of the journal there.
//!
//! With a state directory both of two hosts vote, so whatever was decided is on both. A host whose lease was not renewed for a third of
//! it, and which hears no vote of the other, asks for the record of the next configuration. It is won or lost with one file: whoever wins
//! it goes on as the only voter, with all that both had decided, and waits for the lease of the other as any new leader does (H2). Whoever
//! loses it can renew no lease any more, because the other gives no pledge. A host without the directory changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::coordinator::history::Entry;
use crate::host::messages::Body;
use crate::host::voting::Record;
use crate::host::{Effect, Host};
use crate::job::state::wall_s;
use crate::lease::grant;
use crate::tree::host_list::{HostId, HostList};
use crate::vote::state_keeper::{Beginning, LIVES_AHEAD, StateAnswer, StateTask};
use crate::vote::storage::VoteStorage;
use crate::vote::tie_breaker::{AliveRecord, Claim};

/// A job that lives shows it so often.
const ALIVE_MS: u64 = 1000;
/// How long a sign of life is looked at: one that does not change is of a job that ended without a word.
pub const LOOK_MS: u64 = 5000;
/// On an object store one request in so many seconds costs less, and each may be tried for a while before it fails.
const FAR_ALIVE_MS: u64 = 4000;
const FAR_LOOK_MS: u64 = 20_000;
/// Who votes says something at least so often, even where nobody leads.
const SILENCE_MS: u64 = 1000;
/// From a record that could not be written to the next try.
const RETRY_MS: u64 = 1000;
/// Shares of a lease that have to pass without renewal before a tie is broken: one of so many.
const TIE_SHARE: u64 = 3;
/// Records that are copied in one task.
const COPIED_MAX: usize = 1024;

/// How far a founder is.
#[derive(Debug, Default)]
enum Founding {
    /// It has not asked.
    #[default]
    Unasked,
    /// It asked for these hosts.
    Asked(BTreeSet<HostId>),
    /// Somebody showed life; it looks again then.
    Looks(BTreeSet<HostId>, u64, AliveRecord),
    /// The job of these hosts may begin, here or without the directory.
    May(BTreeSet<HostId>, Option<Beginning>),
}

/// What a host remembers of the state directory.
#[derive(Debug, Default)]
pub(super) struct StateClient {
    founding: Founding,
    /// What the first voter begins with.
    journal: Option<Vec<Vec<u8>>>,
    /// The configuration that this host votes in, and since when.
    settled: (u32, u64),
    /// When the votes of others were heard.
    heard_ms: BTreeMap<HostId, u64>,
    /// When the next configuration was asked for.
    claimed_ms: Option<u64>,
    /// The term for which the keeper copies.
    term: u64,
    alive_ms: u64,
    reserved: u32,
    /// What is wrong with it, said once.
    problem: Option<String>,
    over: bool,
}

impl StateClient {
    /// A host votes.
    pub(super) fn note_vote(&mut self, host: HostId, now_ms: u64) {
        self.heard_ms.insert(host, now_ms);
    }

    /// What earlier starts decided, for who founds this one.
    pub(super) fn take_journal(&mut self) -> Option<Vec<Vec<u8>>> {
        self.journal.take()
    }
}

impl<S: VoteStorage> Host<S> {
    pub(super) fn state_due_ms(&self) -> Option<u64> {
        let looks = match &self.state.founding {
            Founding::Looks(_, look_ms, _) => Some(*look_ms),
            _ => None,
        };
        let copies = self.leading.as_ref().filter(|_| self.copies()).map(|_| self.state.alive_ms);
        let tie = self.tie().map(|(_, due_ms)| due_ms.max(self.now_ms + ALIVE_MS / 10));
        [looks, copies, tie].into_iter().flatten().min()
    }

    /// Whether the job has a state directory, and this host too.
    fn copies(&self) -> bool {
        self.membership.list.state && self.config.state.is_some() && !self.state.over
    }

    fn ask_state(&mut self, task: StateTask) {
        self.out.push(Effect::State(task));
    }

    fn ask_begin(&mut self, hosts: &BTreeSet<HostId>, seen: Option<AliveRecord>) {
        let hosts = hosts.iter().map(|host| host.0).collect();
        self.ask_state(StateTask::Begin { hosts, seen, continues: self.config.continues });
    }

    /// The directory of this host, in words.
    fn place(&self) -> String {
        self.config.state.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }

    /// Says once what is wrong, and once that it is no more.
    fn note_state(&mut self, problem: Option<String>) {
        if self.state.problem != problem {
            let words = problem.clone().unwrap_or_else(|| "can be written again".to_owned());
            self.out.push(Effect::Note(format!("state directory {}: {words}", self.place())));
            self.state.problem = problem;
        }
    }

    /// Whether a job of these hosts may be founded, and how it begins; nothing while that is not known.
    pub(super) fn may_found(
        &mut self,
        hosts: &BTreeSet<HostId>,
        all_have: bool,
    ) -> Option<Option<Beginning>> {
        if self.config.state.is_none() || !(all_have || self.config.state_asked) {
            return Some(None);
        }
        let same = match &self.state.founding {
            Founding::Unasked => false,
            Founding::Asked(asked) => asked == hosts,
            Founding::Looks(asked, look_ms, seen) => {
                let (seen, over) = (seen.clone(), self.now_ms >= *look_ms);
                if asked == hosts && over {
                    self.state.founding = Founding::Asked(hosts.clone());
                    self.ask_begin(hosts, Some(seen));
                }
                true
            }
            Founding::May(asked, beginning) => {
                if asked == hosts {
                    return Some(beginning.clone());
                }
                false
            }
        };
        if !same {
            self.state.founding = Founding::Asked(hosts.clone());
            self.ask_begin(hosts, None);
        }
        self.meeting.why = Some(format!("looks at the state directory {}", self.place()));
        None
    }

    /// The job begins, with what earlier starts decided.
    pub(super) fn begin_with(&mut self, list: &mut HostList, beginning: Beginning) {
        list.state = true;
        list.configuration = beginning.number;
        self.state.reserved = beginning.reserved;
        if beginning.number == 1 {
            return;
        }
        let again = beginning.lives > 0 || !beginning.journal.is_empty();
        let Beginning { number, journal, lives, reserved } = beginning;
        // Its hosts are others now.
        let bare = |bytes: Vec<u8>| match serde_json::from_slice::<Record>(&bytes) {
            Ok(record) => serde_json::to_vec(&Record { change: None, ..record }).unwrap_or(bytes),
            Err(_) => bytes,
        };
        let mut journal: Vec<Vec<u8>> = journal.into_iter().map(bare).collect();
        let resumed = Record {
            term: u64::from(number) << 32,
            number: 0,
            at: wall_s(),
            coordinator_ms: self.clock.coordinator_ms(self.now_ms),
            entries: vec![Entry::Resumed { lives, reserved }],
            facts: Vec::new(),
            change: None,
        };
        journal.extend(serde_json::to_vec(&resumed).ok().filter(|_| again));
        self.state.journal = Some(journal);
    }

    /// What the state directory said.
    pub(super) fn hear_state(&mut self, answer: StateAnswer) {
        match answer {
            StateAnswer::Begun(beginning) => self.may_begin(Some(beginning)),
            StateAnswer::Alive(seen) => {
                if let Founding::Asked(hosts) = std::mem::take(&mut self.state.founding) {
                    let look_ms = if self.config.state_is_far() { FAR_LOOK_MS } else { LOOK_MS };
                    self.state.founding = Founding::Looks(hosts, self.now_ms + look_ms, seen);
                }
            }
            StateAnswer::Refused(why) => self.refuse_all(&why),
            StateAnswer::Unseen(hosts) => {
                let named: Vec<String> =
                    hosts.iter().map(|host| self.meeting.name_of(HostId(*host))).collect();
                let place = self.place();
                self.cannot_begin(format!("{} does not see the state directory {place}", named.join(", ")));
            }
            StateAnswer::Unbegun(why) => self.cannot_begin(format!("state directory: {why}")),
            StateAnswer::Claimed(Claim::Won(record)) => self.win(record.number),
            StateAnswer::Claimed(Claim::Lost(record)) => {
                self.state.claimed_ms = None;
                self.lose_tie(record.number, HostId(record.host), &record.name);
            }
            StateAnswer::Unclaimed(why) => self.note_state(Some(why)),
            StateAnswer::Wants(index) => self.copy_since(index),
            StateAnswer::Reserved(lives) => {
                self.note_state(None);
                self.state.reserved = self.state.reserved.max(lives);
                if let Some(leading) = &mut self.leading {
                    leading.note_news();
                }
            }
            StateAnswer::Uncopied(why) => self.note_state(Some(why)),
        }
    }

    fn may_begin(&mut self, beginning: Option<Beginning>) {
        if let Founding::Asked(hosts) = std::mem::take(&mut self.state.founding) {
            self.state.founding = Founding::May(hosts, beginning);
        }
    }

    /// Begins without the directory, unless somebody asked for it.
    fn cannot_begin(&mut self, why: String) {
        self.out.push(Effect::Note(why.clone()));
        if self.config.state_asked {
            self.refuse_all(&why);
        } else {
            self.may_begin(None);
        }
    }

    fn refuse_all(&mut self, why: &str) {
        for host in self.meeting.others(self.me.id) {
            self.say(host, Body::refused(why.to_owned(), true));
        }
        self.meeting.refused = Some(why.to_owned());
    }

    /// The configuration to ask for, and when, if this is one of two hosts that vote.
    fn tie(&self) -> Option<(u32, u64)> {
        let list = &self.membership.list;
        let ending = self.orders.as_ref().is_some_and(|orders| orders.orders.over.is_some());
        if !list.breaks_ties() || self.config.state.is_none() || self.rank.is_none() || ending {
            return None;
        }
        let voter = self.voter.as_ref().filter(|voter| voter.group.is_voting())?;
        let settled = voter.group.configuration().filter(|settled| settled.voters.len() == 2)?;
        let next = settled.number + 1;
        // Whoever has heard from the other that the next one is its own, and forgot that it asked, asks again.
        let ours = list.configuration == next && list.voters == [self.me.id];
        if list.configuration != settled.number && !ours {
            return None;
        }
        let other = settled.voters.iter().copied().map(HostId).find(|voter| *voter != self.me.id)?;
        let (known, since_ms) = self.state.settled;
        let since_ms = if known == settled.number { since_ms } else { self.now_ms };
        let lease_ms = self.config.lease_ms;
        let renewed_ms = self.lease_end_ms.map_or(0, |end_ms| end_ms.saturating_sub(lease_ms)).max(since_ms);
        let heard_ms = self.state.heard_ms.get(&other).copied().unwrap_or(0).max(since_ms);
        let silent_ms = heard_ms + grant::unheard_ms(lease_ms).max(SILENCE_MS);
        let again_ms = self.state.claimed_ms.map_or(0, |asked_ms| asked_ms + RETRY_MS);
        Some((next, (renewed_ms + lease_ms / TIE_SHARE).max(silent_ms).max(again_ms)))
    }

    /// Asks for the record of the next configuration when this host may have lost the other; shows that the job lives where it leads.
    pub(super) fn keep_state(&mut self) {
        if let Some(settled) = self.voter.as_ref().and_then(|voter| voter.group.configuration()) {
            if self.state.settled.0 != settled.number {
                (self.state.settled, self.state.claimed_ms) = ((settled.number, self.now_ms), None);
            }
        }
        if let Some((next, due_ms)) = self.tie() {
            if self.now_ms >= due_ms {
                self.state.claimed_ms = Some(self.now_ms);
                self.ask_state(StateTask::Claim(next));
            }
        }
        self.show_alive();
    }

    /// This host goes on alone.
    fn win(&mut self, number: u32) {
        self.state.claimed_ms = None;
        let Some(voter) = &mut self.voter else { return };
        let settled = voter.group.configuration().is_some_and(|settled| settled.number + 1 == number);
        if !settled {
            return;
        }
        let words = match voter.group.continue_alone(number) {
            Ok(()) => format!("goes on alone with configuration {number}: the other host is not heard"),
            Err(problem) => format!("cannot go on alone: {problem}"),
        };
        self.out.push(Effect::Note(words));
    }

    /// Another goes on; this host is to find it.
    fn lose_tie(&mut self, number: u32, winner: HostId, name: &str) {
        let list = &self.membership.list;
        if number > list.configuration {
            self.out.push(Effect::Note(format!("host {name} goes on alone with configuration {number}")));
            let mut list = HostList::clone(list);
            (list.voters, list.configuration) = (vec![winner], number);
            self.take_list(Arc::new(list));
        }
    }

    /// Keeps the copy and the sign of life of a job that this host leads.
    fn show_alive(&mut self) {
        let Some(term) = self.leading.as_ref().map(|leading| leading.term()).filter(|_| self.copies()) else {
            return;
        };
        let Some(voter) = &self.voter else { return };
        let (lives, count) = (voter.history.lives(), voter.records as usize);
        let over = self.ending.is_told() && self.orders.as_ref().is_some_and(|o| o.orders.over.is_some());
        if self.state.term != term {
            (self.state.term, self.state.alive_ms) = (term, 0);
            self.ask_state(StateTask::Lead(term));
        }
        if over {
            self.state.over = true;
            self.ask_state(StateTask::Over(lives, count));
        } else if self.now_ms >= self.state.alive_ms {
            let pause_ms = if self.config.state_is_far() { FAR_ALIVE_MS } else { ALIVE_MS };
            self.state.alive_ms = self.now_ms + pause_ms;
            self.ask_state(StateTask::Alive(lives, count));
        }
    }

    /// A record is decided.
    pub(super) fn copy_record(&mut self, index: usize, record: &[u8]) {
        if self.leading.is_some() && self.copies() {
            self.ask_state(StateTask::Copy(index, vec![record.to_vec()]));
        }
    }

    fn copy_since(&mut self, index: usize) {
        let Some(voter) = self.voter.as_ref().filter(|_| self.copies()) else { return };
        let mut records = voter.group.decided_since(index);
        records.truncate(COPIED_MAX);
        if !records.is_empty() {
            self.ask_state(StateTask::Copy(index, records));
        }
    }

    /// Numbers of lives below this are this start's; nothing where no other start can be.
    pub(super) fn reserved_lives(&self) -> Option<u32> {
        let known = self.voter.as_ref().and_then(|voter| voter.history.reserved).unwrap_or(LIVES_AHEAD);
        self.membership.list.state.then(|| known.max(self.state.reserved))
    }
}
