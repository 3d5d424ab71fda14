//! Questions about a whole job: to the leader, then down to all hosts that are heard, and the answers put together on the way back.
//!
//! A question has a deadline, and each level of the tree answers a little sooner than the one above it. Every host that was asked
//! answered, is unheard, or refused, and none is counted twice (H5). When a host between two others is lost, those below it are asked
//! again at their new place; a host that has answered before says the same again, so no work is done twice.

pub mod answer;
mod own;
pub(super) mod status;

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use crate::host::messages::{Body, Question};
use crate::host::questions::answer::{Answer, Part};
use crate::host::{Effect, Host};
use crate::lease::host_state::HostState;
use crate::tree::host_list::HostId;
use crate::tree::rank_set::RankSet;
use crate::vote::storage::VoteStorage;

/// How long whoever asked waits, where that is not said.
pub const PATIENCE_MS: u64 = 2000;
/// Nobody waits longer.
pub const PATIENCE_MAX_MS: u64 = 600_000;
/// What a level of the tree waits less than the one above it: this share, and at most so long.
const LEVEL_SHARE: u64 = 16;
const LEVEL_MS: u64 = 150;
/// Questions under way at once; more are refused.
pub const OPEN_MAX: usize = 64;
/// Of these, questions that have work done on this host.
const TASKS_MAX: usize = 8;
/// Questions that are known to be over.
const OVER_MAX: usize = 512;
/// How long hosts may take to another place: so many heartbeats, and so long at least.
const RETURN_BEATS: u64 = 6;
const RETURN_MS: u64 = 2000;

/// Who gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// Somebody on this host.
    Here(u64),
    /// A host that passed the question on, and whether it did so on the way down.
    Host(HostId, bool),
}

impl Asker {
    fn is(self, host: HostId) -> bool {
        matches!(self, Self::Host(asker, _) if asker == host)
    }
}

#[derive(Debug)]
struct Open {
    asker: Asker,
    what: Question,
    /// Who was asked and has not answered, and which hosts it speaks for.
    pending: BTreeMap<HostId, RankSet>,
    /// Everybody who was asked.
    asked: Vec<HostId>,
    /// Hosts below one that was lost, which have to be asked again.
    orphans: RankSet,
    /// Until when they are waited for.
    return_ms: u64,
    /// The own work is under way.
    works: bool,
    answer: Answer,
    until_ms: u64,
}

/// A question as a host between asker and leader has it under way, perhaps twice: once on its way up, and once more on its way down,
/// because the leader asks everybody below, the way that the question came included.
type OnItsWay = (u64, Way);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// To the leader.
    Up,
    /// To all hosts below.
    Down,
}

/// Questions under way.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: BTreeMap<OnItsWay, Open>,
    /// What was answered on the way down, until whoever asked waits no more: it may be asked for again from elsewhere.
    answered: BTreeMap<u64, (u64, Answer)>,
    /// The newest questions that are over.
    over: VecDeque<u64>,
    /// Hosts below one that was lost, and until when they are waited for.
    lost: VecDeque<(u64, RankSet)>,
    /// The term in which this host leads, and since when.
    led: Option<(u64, u64)>,
    next: u64,
}

impl Questions {
    pub(super) fn due_ms(&self) -> Option<u64> {
        let kept = self.answered.values().map(|(until_ms, _)| *until_ms);
        let open = self.open.values().map(|open| match open.orphans.is_empty() {
            true => open.until_ms,
            false => open.until_ms.min(open.return_ms),
        });
        open.chain(kept).min()
    }

    /// Keeps an answer for as long as it may be asked for again; of too many the oldest is forgotten.
    fn remember(&mut self, question: u64, until_ms: u64, answer: &Answer) {
        self.answered.insert(question, (until_ms, answer.clone()));
        self.note_over(question);
        if self.answered.len() > OPEN_MAX {
            let oldest = self.answered.iter().min_by_key(|(_, (until_ms, _))| *until_ms);
            if let Some(oldest) = oldest.map(|(question, _)| *question) {
                self.answered.remove(&oldest);
            }
        }
    }

    /// Nothing is done for a question any more, whoever asks.
    fn note_over(&mut self, question: u64) {
        if !self.over.contains(&question) {
            self.over.push_back(question);
        }
        if self.over.len() > OVER_MAX {
            self.over.pop_front();
        }
    }

    /// A host cannot be reached any more, so it answers nothing; those below it may, from another place.
    fn lose(&mut self, host: HostId, below: &RankSet, return_ms: u64) {
        self.lost.push_back((return_ms, below.clone()));
        if self.lost.len() > OPEN_MAX {
            self.lost.pop_front();
        }
        for open in self.open.values_mut() {
            if let Some(expected) = open.pending.remove(&host) {
                open.orphans = open.orphans.union(&expected.both(below));
                open.return_ms = return_ms;
            }
            open.asked.retain(|asked| *asked != host);
        }
    }

    /// Hosts below one that was lost a moment ago: they are on their way to another place.
    fn lost(&mut self, now_ms: u64) -> RankSet {
        self.lost.retain(|(until_ms, _)| now_ms < *until_ms);
        self.lost.iter().fold(RankSet::default(), |all, (_, hosts)| all.union(hosts))
    }
}

impl Open {
    fn new(asker: Asker, what: Question, until_ms: u64) -> Self {
        let (pending, asked, orphans) = (BTreeMap::new(), Vec::new(), RankSet::default());
        let (works, answer) = (false, Answer::default());
        Self { asker, what, pending, asked, orphans, return_ms: until_ms, works, answer, until_ms }
    }

    /// Nothing more is to come: everybody has answered, or others have for them.
    fn is_done(&self) -> bool {
        if self.works {
            return false;
        }
        let known = self.answer.accounted();
        self.pending.values().all(|hosts| !hosts.is_empty() && hosts.is_within(&known))
            && self.orphans.is_within(&known)
    }
}

impl<S: VoteStorage> Host<S> {
    /// Somebody on this host asks.
    pub(super) fn ask(&mut self, ask: u64, what: Question, patience_ms: u64) {
        self.questions.next += 1;
        // Unlike those of any other start of this process, whose answers may be remembered.
        let question = self.me.id.0.rotate_left(20) ^ (self.now_ms << 12) ^ self.questions.next;
        self.pass_on(question, Asker::Here(ask), what, patience_ms.min(PATIENCE_MAX_MS));
    }

    /// A host cannot be reached any more.
    pub(super) fn lose_answers(&mut self, host: HostId) {
        let hosts = self.below.subtrees().find(|(child, _)| *child == host).map(|(_, hosts)| hosts.clone());
        let own = self.membership.list.rank_of(host).into_iter().collect();
        let return_ms = self.now_ms + self.return_ms();
        self.questions.lose(host, &hosts.unwrap_or_default().minus(&own), return_ms);
    }

    pub(super) fn hear_ask(
        &mut self,
        from: HostId,
        (question, down): (u64, bool),
        what: Question,
        patience_ms: u64,
    ) {
        let way = if down { Way::Down } else { Way::Up };
        let patience_ms = patience_ms.min(PATIENCE_MAX_MS);
        match self.questions.open.get_mut(&(question, way)) {
            // While a tree changes two hosts may each take the other for the one above; a question goes round only once.
            Some(open) if open.asked.contains(&from) || matches!(open.asker, Asker::Here(_)) => {
                if down {
                    self.say(from, Body::Answer { question, down, answer: Box::default() });
                }
            }
            // The one who asked before is lost, or no longer above.
            Some(open) => open.asker = Asker::Host(from, down),
            None if down => self.ask_below(question, Asker::Host(from, down), what, patience_ms),
            None => self.pass_on(question, Asker::Host(from, down), what, patience_ms),
        }
    }

    /// Brings a question to the leader.
    fn pass_on(&mut self, question: u64, asker: Asker, what: Question, patience_ms: u64) {
        let for_all = what.hosts(self.membership.list.len());
        let nobody_leads = for_all.is_none() && self.membership.leader.is_none();
        if self.leading.is_some() || self.rank.is_none() || what.is_of_hosts() && nobody_leads {
            self.ask_below(question, asker, what, patience_ms);
            return;
        }
        let mut open = Open::new(asker, what, self.now_ms + patience_ms);
        if self.questions.open.len() >= OPEN_MAX {
            open.answer = Answer::refusal(for_all.unwrap_or_default(), &self.too_many());
        } else if for_all.is_none() && self.upward.parent().is_none() {
            open.answer = self.own_answer(&open.what);
        } else {
            self.questions.open.insert((question, Way::Up), open);
            self.ask_parent(question);
            return;
        }
        self.finish((question, Way::Up), open);
    }

    fn too_many(&self) -> String {
        format!("{OPEN_MAX} questions are under way at {}", self.me.name)
    }

    /// Asks whoever is the parent now; a host that leads asks all.
    fn ask_parent(&mut self, question: u64) {
        if self.leading.is_some() {
            let Some(open) = self.questions.open.remove(&(question, Way::Up)) else { return };
            let patience_ms = open.until_ms.saturating_sub(self.now_ms);
            self.ask_below(question, open.asker, open.what, patience_ms);
            return;
        }
        let Some(parent) = self.upward.parent() else { return };
        let Some(open) = self.questions.open.get_mut(&(question, Way::Up)) else { return };
        if open.asker.is(parent) || open.pending.contains_key(&parent) {
            return;
        }
        open.pending = BTreeMap::from([(parent, RankSet::default())]);
        open.asked = vec![parent];
        let (what, patience_ms) = (open.what.clone(), below_ms(open.until_ms, self.now_ms));
        self.say(parent, Body::Ask { question, down: false, what, patience_ms });
    }

    /// Asks all that are heard below, and answers itself.
    fn ask_below(&mut self, question: u64, asker: Asker, what: Question, patience_ms: u64) {
        let chosen = what.hosts(self.membership.list.len());
        let on_its_way = (question, Way::Down);
        let (to_come, return_ms) = (self.hosts_to_come(), self.return_ms());
        if let Some(under_way) = self.questions.open.get_mut(&on_its_way) {
            under_way.asker = asker;
            // Perhaps this host did not lead when it was asked first.
            under_way.orphans = under_way.orphans.union(&to_come.both(&chosen.unwrap_or_default()));
            under_way.return_ms = self.now_ms + return_ms;
            return;
        }
        let mut open = Open::new(asker, what, self.now_ms + patience_ms);
        let Some(chosen) = chosen else {
            if let (Question::Ended { host, by }, Some(leading)) = (&open.what, self.leading.as_mut()) {
                self.out.push(Effect::Note(format!("{by}: nothing of host {host} runs any more")));
                leading.note_ended(*host, by, self.now_ms);
            }
            if let (Question::Wanted { tried }, Some(leading)) = (&open.what, self.leading.as_mut()) {
                leading.requests.note_starter(self.now_ms, tried);
            }
            open.answer = self.own_answer(&open.what);
            self.finish(on_its_way, open);
            return;
        };
        if self.questions.open.len() >= OPEN_MAX {
            let hosts = self.below.merged.hosts.both(&chosen);
            open.answer = Answer::refusal(hosts, &self.too_many());
            self.finish(on_its_way, open);
            return;
        }
        if let Some((_, known)) = self.questions.answered.remove(&question) {
            // Asked again, from another place: what is known is not found out a second time.
            open.answer = known;
        } else if self.questions.over.contains(&question) {
            // What was said long ago came once more.
            self.finish(on_its_way, open);
            return;
        }
        open.orphans = self.questions.lost(self.now_ms).union(&to_come).both(&chosen);
        open.return_ms = self.now_ms + return_ms;
        self.begin_own(question, &mut open, &chosen);
        self.questions.open.insert(on_its_way, open);
        self.ask_children(question);
        self.finish_if_done(on_its_way);
    }

    /// Answers for this host, or begins the work that the answer needs.
    fn begin_own(&mut self, question: u64, open: &mut Open, chosen: &RankSet) {
        let is_known = |rank: &u32| open.answer.accounted().contains(*rank);
        let rank = self.rank.filter(|rank| chosen.contains(*rank) && !is_known(rank));
        let Some(rank) = rank else { return };
        let Question::Task { task, .. } = &open.what else {
            open.answer.take(self.own_answer(&open.what));
            return;
        };
        let busy = self.questions.open.values().filter(|open| open.works).count();
        if busy >= TASKS_MAX {
            let why = format!("{TASKS_MAX} tasks are under way already");
            open.answer.take(Answer::refusal(RankSet::one(rank), &why));
            return;
        }
        let mut task = task.clone();
        self.note_leader_time(&mut task);
        open.works = true;
        let limit_ms = below_ms(open.until_ms, self.now_ms);
        self.out.push(Effect::Task(question, task, limit_ms));
    }

    /// Tells what the leader's clock shows now, so that moments of this host can be said in its time.
    pub(super) fn note_leader_time(&self, told: &mut Value) {
        if let Some(orders) = self.orders.as_ref().filter(|orders| orders.wall_ms != 0 && told.is_object()) {
            let wall_ms = self.clock.coordinator_ms(self.now_ms).saturating_add_signed(orders.wall_ms);
            told["leader_wall_ms"] = json!(wall_ms);
        }
    }

    /// Asks the hosts below that were not asked yet and speak for somebody who has not answered.
    fn ask_children(&mut self, question: u64) {
        let Some(open) = self.questions.open.get(&(question, Way::Down)) else { return };
        let chosen = open.what.hosts(self.membership.list.len()).unwrap_or_default();
        let known = open.answer.accounted();
        let patience_ms = below_ms(open.until_ms, self.now_ms);
        // To the leader a question comes from below; to all others on this way from above.
        let above = Some(open.asker).filter(|_| self.leading.is_none());
        let is_new =
            |host: &HostId| !open.asked.contains(host) && !above.is_some_and(|asker| asker.is(*host));
        let new = self.below.subtrees().filter(|(host, _)| is_new(host));
        let new = new.map(|(host, hosts)| (host, hosts.both(&chosen)));
        let mut new: Vec<_> = new.filter(|(_, hosts)| !hosts.is_within(&known)).collect();
        new.sort_unstable_by_key(|(host, _)| *host);
        let what = open.what.clone();
        for (host, expected) in new {
            if let Some(open) = self.questions.open.get_mut(&(question, Way::Down)) {
                open.pending.insert(host, expected);
                open.asked.push(host);
            }
            self.say(host, Body::Ask { question, down: true, what: what.clone(), patience_ms });
        }
    }

    /// Hosts that should be heard by who leads, or should be soon: one that leads since a moment ago does not hear all of them yet.
    fn hosts_to_come(&self) -> RankSet {
        let Some(leading) = &self.leading else { return RankSet::default() };
        let is_new = self.questions.led.is_none_or(|(_, since_ms)| self.now_ms < since_ms + self.return_ms());
        let states = leading.states().into_iter().zip(0..);
        let comes = |state: HostState| state == HostState::Here || is_new && state == HostState::Unheard;
        states.filter(|(state, _)| comes(*state)).map(|(_, rank)| rank).collect()
    }

    /// How long hosts may take to another place, when the one above them is lost.
    fn return_ms(&self) -> u64 {
        (RETURN_BEATS * self.heartbeat_ms()).max(RETURN_MS)
    }

    /// The work that a question needed of this host is done.
    pub(super) fn take_task(&mut self, question: u64, found: Result<Vec<Part>, String>) {
        let on_its_way = (question, Way::Down);
        let Some(open) = self.questions.open.get_mut(&on_its_way).filter(|open| open.works) else { return };
        open.works = false;
        if let Some(rank) = self.rank {
            open.answer.take(match found {
                Ok(parts) => Answer::of(rank, parts),
                Err(why) => Answer::refusal(RankSet::one(rank), &why),
            });
        }
        self.finish_if_done(on_its_way);
    }

    pub(super) fn hear_answer(&mut self, from: HostId, (question, down): (u64, bool), answer: Answer) {
        // While a tree changes a host may be above and below at once, so the answer says to which of the two it belongs.
        let way = if down { Way::Down } else { Way::Up };
        let Some(open) = self.questions.open.get_mut(&(question, way)) else { return };
        if open.pending.remove(&from).is_some() {
            open.answer.take(answer);
            self.finish_if_done((question, way));
        }
    }

    fn finish_if_done(&mut self, on_its_way: OnItsWay) {
        if self.questions.open.get(&on_its_way).is_some_and(Open::is_done) {
            if let Some(open) = self.questions.open.remove(&on_its_way) {
                self.finish(on_its_way, open);
            }
        }
    }

    /// Asks again whoever came to another place, and answers what was not answered in time with what there is.
    pub(super) fn keep_questions(&mut self) {
        let term = self.leading.as_ref().map(|leading| leading.term());
        if self.questions.led.map(|(term, _)| term) != term {
            self.questions.led = term.map(|term| (term, self.now_ms));
            // Hosts that were above until now have not answered for those below them.
            let open = self.questions.open.values_mut();
            open.for_each(|open| open.asked.retain(|host| open.pending.contains_key(host)));
        }
        if self.questions.open.is_empty() && self.questions.answered.is_empty() {
            return;
        }
        let now_ms = self.now_ms;
        self.questions.answered.retain(|_, (until_ms, _)| now_ms < *until_ms);
        for on_its_way in self.questions.open.keys().copied().collect::<Vec<_>>() {
            let (question, way) = on_its_way;
            if self.questions.open.get(&on_its_way).is_some_and(|open| now_ms >= open.until_ms) {
                if let Some(open) = self.questions.open.remove(&on_its_way) {
                    self.finish(on_its_way, open);
                }
                continue;
            }
            if let Some(open) =
                self.questions.open.get_mut(&on_its_way).filter(|open| now_ms >= open.return_ms)
            {
                open.orphans = RankSet::default();
            }
            match way {
                Way::Up => self.ask_parent(question),
                Way::Down => {
                    self.ask_children(question);
                    self.finish_if_done(on_its_way);
                }
            }
        }
    }

    fn finish(&mut self, (question, way): OnItsWay, mut open: Open) {
        if open.works {
            self.out.push(Effect::EndTask(question));
            let why = "what was to be done there took too long".to_owned();
            open.answer
                .take(self.rank.map(|rank| Answer::refusal(RankSet::one(rank), &why)).unwrap_or_default());
        }
        if way == Way::Up && open.answer == Answer::default() {
            // The leader is not heard, so this host speaks for itself.
            open.answer = self.own_answer(&open.what);
        }
        open.answer.bound();
        let everybody = open.what.hosts(self.membership.list.len());
        if way == Way::Down && everybody.is_some() && open.answer != Answer::default() {
            self.questions.remember(question, open.until_ms + LEVEL_MS, &open.answer);
        }
        match open.asker {
            Asker::Host(host, down) => {
                self.say(host, Body::Answer { question, down, answer: Box::new(open.answer) });
            }
            Asker::Here(ask) => {
                let answer = self.told(everybody, open.answer);
                self.out.push(Effect::Answer(ask, answer));
            }
        }
    }

    /// Who asked on this host has left.
    pub(super) fn withdraw_ask(&mut self, ask: u64) {
        self.withdraw(|_, asker| asker == Asker::Here(ask));
    }

    /// Who passed a question on does not wait any more.
    pub(super) fn hear_withdrawal(&mut self, from: HostId, question: u64) {
        self.withdraw(|known, asker| known == question && asker.is(from));
    }

    fn withdraw(&mut self, is_gone: impl Fn(u64, Asker) -> bool) {
        let open = self.questions.open.iter();
        let over = open.filter(|((question, _), open)| is_gone(*question, open.asker));
        for on_its_way in over.map(|(on_its_way, _)| *on_its_way).collect::<Vec<_>>() {
            let Some(open) = self.questions.open.remove(&on_its_way) else { continue };
            self.questions.note_over(on_its_way.0);
            if open.works {
                self.out.push(Effect::EndTask(on_its_way.0));
            }
            for host in open.pending.into_keys() {
                self.say(host, Body::Withdraw { question: on_its_way.0 });
            }
        }
    }
}

/// What is left for the next level, so that its answer is here in time.
fn below_ms(until_ms: u64, now_ms: u64) -> u64 {
    let left_ms = until_ms.saturating_sub(now_ms);
    left_ms - (left_ms / LEVEL_SHARE).min(LEVEL_MS)
}
