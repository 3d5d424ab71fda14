//! A voter keeps the journal of the job: what is decided, a majority of voters has on disk before anybody acts on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coordinator::history::{Entry, JobHistory};
use crate::error::Result;
use crate::host::messages::list_news::{ListChange, ListStep};
use crate::host::messages::{Body, Header};
use crate::host::{Effect, Host};
use crate::lease::grant;
use crate::lease::host_state::HostState;
use crate::tree::host_list::{HostEntry, HostId, HostList};
use crate::vote::Configuration;
use crate::vote::group::VoterGroup;
use crate::vote::message::VoteMessage;
use crate::vote::storage::VoteStorage;

/// Time as voters count it; and as those of a job that was just founded do, slower with each tick. They are all here and have nobody to
/// wait for, so the first leader is found in some ten milliseconds where answers come so quickly, and in a second at the latest.
const TICK_MS: u64 = 100;
const FIRST_TICK_MS: u64 = 10;
const SLOWER_MS: u64 = 2;
/// Decided lines that a leader can show.
const SHOWN_MAX: usize = 10_000;

/// How a voter's storage is opened.
pub type OpenVotes<S> = Box<dyn FnMut() -> Result<S> + Send>;

/// A change of the host list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostChange {
    /// Of the list that it makes.
    pub version: u64,
    /// Host ranks and who has them from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<(u32, HostEntry)>,
    /// Host ranks whose hosts were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<u32>,
    /// Host ranks whose hosts came back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub back: Vec<u32>,
    /// What became of those that were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<(u32, HostState)>,
    /// The gang has another size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
}

/// Another size of the gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Host ranks that it does without from now on.
    pub resting: BTreeSet<u32>,
    /// When, in the coordinator's time.
    pub at_ms: u64,
    /// Why, in words.
    pub why: String,
}

impl HostChange {
    /// The list after it.
    pub fn apply(&self, list: &HostList) -> HostList {
        let mut list = list.clone();
        list.version = self.version;
        list.vacant.extend(&self.lost);
        list.vacant.retain(|rank| !self.back.contains(rank));
        for (rank, entry) in &self.placed {
            list.hosts.replace(*rank, entry.clone());
            list.vacant.remove(rank);
        }
        if let Some(resize) = &self.resize {
            (list.resting, list.resized_ms) = (resize.resting.clone(), resize.at_ms);
        }
        list
    }
}

/// What voters agree on: a few entries of the journal, and what they mean for the hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Of the leader that proposed it.
    pub term: u64,
    /// Counts its records.
    pub number: u64,
    /// When, in seconds since 1970 as the leader knows it.
    pub at: f64,
    /// When, in the coordinator's time.
    pub coordinator_ms: u64,
    /// What happened and what was decided.
    pub entries: Vec<Entry>,
    /// What concerns people only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Value>,
    /// What changed among the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<HostChange>,
}

impl Record {
    /// As lines of the journal. A change of hosts that came after another of the same version has no effect, and no line.
    pub fn lines(&self, changes: bool) -> Vec<Value> {
        let entries = self.entries.iter().filter_map(|entry| serde_json::to_value(entry).ok());
        let change = self
            .change
            .iter()
            .filter(|_| changes)
            .map(|change| serde_json::json!({"event": "hosts", "about": change}));
        let mut lines: Vec<Value> = entries.chain(self.facts.iter().cloned()).chain(change).collect();
        for line in &mut lines {
            line["at"] = self.at.into();
            line["coordinator_ms"] = self.coordinator_ms.into();
            line["term"] = self.term.into();
        }
        lines
    }
}

/// This host's part in the votes.
pub struct Voter<S: VoteStorage> {
    pub(super) group: VoterGroup<S>,
    tick_ms: u64,
    /// To the tick after that.
    pause_ms: u64,
    /// The journal, folded.
    pub(super) history: JobHistory,
    /// The journal's newest lines.
    pub(super) lines: Vec<Value>,
    /// Lines of the journal so far.
    line: u64,
    /// Records of the journal so far.
    pub(super) records: u64,
    /// The version of the host list after them; nothing before the first change.
    version: Option<u64>,
    /// What became of hosts that were lost and not replaced, by host rank.
    lost: BTreeMap<u32, HostState>,
    /// It could not write when it was looked at last.
    was_silent: bool,
}

impl<S: VoteStorage> Voter<S> {
    /// Where a host is as the journal says. That stays true whoever leads (H8): one with processes that cannot be killed is waited for longer.
    pub(super) fn state_of(&self, list: &HostList, rank: u32) -> HostState {
        match self.lost.get(&rank) {
            _ if !list.vacant.contains(&rank) => HostState::Here,
            lost => lost.copied().unwrap_or(HostState::Expired),
        }
    }
}

impl<S: VoteStorage> Host<S> {
    pub(super) fn voting_due_ms(&self) -> Option<u64> {
        self.voter.as_ref().map(|voter| voter.tick_ms)
    }

    /// Begins or ends to vote, as the host list says.
    pub(super) fn change_voters(&mut self) {
        let list = &self.membership.list;
        if !list.voters.contains(&self.me.id) || self.votes {
            return;
        }
        let voters = list.voters.iter().map(|voter| voter.0).collect();
        let configuration = Configuration { number: list.configuration, voters };
        let (me, journal) = (self.me.id.0, self.state.take_journal());
        let opened = (self.open_votes)().map_err(|problem| problem.to_string()).and_then(|storage| {
            let group = match journal {
                Some(journal) => VoterGroup::found(me, configuration, storage, journal),
                None => VoterGroup::open(me, configuration, storage),
            };
            group.map_err(|problem| problem.to_string())
        });
        match opened {
            Ok(group) => {
                let history = JobHistory::of(&self.job, &self.plans);
                let lines = Vec::new();
                self.votes = true;
                let pause_ms = if self.membership.term == 0 { FIRST_TICK_MS } else { TICK_MS };
                let tick_ms = self.now_ms;
                let voter = Voter {
                    group,
                    tick_ms,
                    pause_ms,
                    history,
                    lines,
                    line: 0,
                    records: 0,
                    version: None,
                    lost: BTreeMap::new(),
                    was_silent: false,
                };
                self.voter = Some(Box::new(voter));
            }
            Err(problem) => self.out.push(Effect::Note(format!("this host cannot vote: {problem}"))),
        }
    }

    /// Lets the votes go on.
    pub(super) fn vote(&mut self) {
        let Some(mut voter) = self.voter.take() else { return };
        let mut ticks = 0;
        while self.now_ms >= voter.tick_ms && ticks < 3 {
            voter.group.tick();
            (voter.tick_ms, ticks) = (voter.tick_ms + voter.pause_ms, ticks + 1);
            voter.pause_ms = if voter.group.leader().is_some() {
                TICK_MS
            } else {
                TICK_MS.min(voter.pause_ms + SLOWER_MS)
            };
        }
        voter.tick_ms = voter.tick_ms.max(self.now_ms.saturating_sub(TICK_MS));
        for (to, message) in voter.group.outgoing() {
            let to = HostId(to);
            if self.reach(to) {
                self.say(to, Body::Vote(Box::new(message)));
            }
        }
        let decided = voter.group.decided();
        let leads = |term: u64| voter.group.is_leader() && voter.group.term() == term;
        if self.leading.as_ref().is_some_and(|leading| !leads(leading.term())) {
            // What is decided now was not decided in its term, so it gives no orders for it (H1).
            self.leading = None;
            self.upward.begin_again();
        }
        for record in decided {
            self.copy_record(voter.records as usize, &record);
            voter.records += 1;
            match serde_json::from_slice::<Record>(&record) {
                Ok(record) => self.apply_record(&mut voter, &record),
                Err(problem) => self.out.push(Effect::Note(format!("a record is no record: {problem}"))),
            }
        }
        let (term, leader) = (voter.group.term(), voter.group.leader().map(HostId));
        let next = voter.group.next();
        let silent = voter.group.failure().is_some();
        let news = std::mem::replace(&mut voter.was_silent, silent) != silent;
        self.voter = Some(voter);
        if news {
            self.summarise_own();
        }
        if term > self.membership.term && leader.is_some() && leader != Some(self.me.id) {
            self.follow_term(term, leader);
        }
        if let Some(next) = next.filter(|next| next.number > self.membership.list.configuration) {
            let voters = next.voters.iter().map(|voter| HostId(*voter)).collect();
            let change = ListChange::Voters { configuration: next.number, voters };
            self.take_step(Arc::new(ListStep { before: self.membership.list.stamp(), change }));
        }
    }

    fn apply_record(&mut self, voter: &mut Voter<S>, record: &Record) {
        record.entries.iter().for_each(|entry| voter.history.fold(entry));
        let version = record.change.as_ref().map(|change| change.version);
        let changes = version.is_some() && voter.version.is_none_or(|known| version == Some(known + 1));
        voter.version = version.filter(|_| changes).or(voter.version);
        if let Some(change) = record.change.as_ref().filter(|_| changes) {
            voter.lost.extend(change.states.iter().copied());
            let filled = |rank: &u32| {
                change.back.contains(rank) || change.placed.iter().any(|(placed, _)| placed == rank)
            };
            voter.lost.retain(|rank, _| !filled(rank));
        }
        let mut lines = record.lines(changes);
        for line in &mut lines {
            voter.line += 1;
            line["line"] = voter.line.into();
        }
        voter.lines.extend(lines.iter().cloned());
        let excess = voter.lines.len().saturating_sub(SHOWN_MAX);
        voter.lines.drain(..excess);
        self.out.push(Effect::Write(lines));
        let (version, before) = (self.membership.list.version, self.membership.list.stamp());
        if let Some(change) = record.change.as_ref().filter(|change| change.version == version + 1) {
            let change = ListChange::Hosts(change.clone());
            self.take_step(Arc::new(ListStep { before, change }));
        }
        self.note_decided(record);
    }

    pub(super) fn hear_vote(&mut self, from: HostId, message: VoteMessage) {
        self.state.note_vote(from, self.now_ms);
        if let Some(voter) = &mut self.voter {
            voter.group.receive(message);
        }
    }

    /// Whether the term of who asks is still the newest that this voter knows.
    pub(super) fn hear_pledge(&mut self, from: HostId, header: Header, number: u64) {
        // Who has no disk to vote with gives no lease either.
        let Some(voter) = self.voter.as_ref().filter(|voter| voter.group.is_voting()) else { return };
        if header.term >= self.membership.term && header.term >= voter.group.term() {
            self.say(from, Body::Pledged { number });
        }
    }

    /// Why nothing can be decided now, as people are told.
    pub(super) fn frozen(&self) -> Option<String> {
        let voters = &self.membership.list.voters;
        if self.rank.is_none() || voters.is_empty() {
            return None;
        }
        let answers = |voter: &HostId| match &self.leading {
            Some(leading) => leading
                .is_pledged(*voter, self.now_ms.saturating_sub(grant::unheard_ms(self.config.lease_ms))),
            None => self.links.to(*voter).is_some(),
        };
        let here = voters.iter().filter(|voter| **voter == self.me.id || answers(voter)).count();
        let decides = match &self.leading {
            Some(_) => self.lease_end_ms.is_some_and(|end_ms| end_ms > self.now_ms),
            None => self.upward.parent().is_some(),
        };
        (!decides).then(|| format!("{here} of {} voters", voters.len()))
    }
}
