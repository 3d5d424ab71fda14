//! Questions about a whole job: to the leader, then down to all hosts that are heard, and the answers put together on the way back.

pub(super) mod status;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::host::messages::{Body, Question};
use crate::host::{Effect, Host};
use crate::tree::host_list::HostId;
use crate::vote::storage::VoteStorage;

/// How long whoever asked waits.
const PATIENCE_MS: u64 = 2000;
/// What a level of the tree waits less than the one above it.
const LEVEL_MS: u64 = 200;
/// Questions under way at once; more are refused.
const OPEN_MAX: usize = 64;

/// Who gets the answer.
#[derive(Debug)]
enum Asker {
    /// Somebody on this host.
    Here(u64),
    /// A host that passed the question on.
    Host(HostId),
}

#[derive(Debug)]
struct Open {
    asker: Asker,
    /// Children that have not answered.
    waits_for: BTreeSet<HostId>,
    rows: Vec<Value>,
    answered: u32,
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
    next: u64,
}

impl Questions {
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.open.values().map(|open| open.until_ms).min()
    }
}

impl<S: VoteStorage> Host<S> {
    /// Somebody on this host asks.
    pub(super) fn ask(&mut self, ask: u64, what: Question) {
        self.questions.next += 1;
        let question = self.me.id.0.rotate_left(20) ^ self.questions.next;
        self.pass_on(question, Asker::Here(ask), &what);
    }

    pub(super) fn hear_ask(&mut self, from: HostId, question: u64, down: bool, what: Question) {
        let way = if down { Way::Down } else { Way::Up };
        if self.questions.open.contains_key(&(question, way)) {
            // While a tree changes two hosts may each take the other for the one above; a question goes round only once.
            self.say(from, Body::Answer { question, rows: Vec::new(), answered: 0 });
        } else if down {
            self.ask_below(question, Asker::Host(from), &what);
        } else {
            self.pass_on(question, Asker::Host(from), &what);
        }
    }

    /// Brings a question to the leader.
    fn pass_on(&mut self, question: u64, asker: Asker, what: &Question) {
        if self.leading.is_some() || *what == Question::Hosts && self.membership.leader.is_none() {
            self.ask_below(question, asker, what);
            return;
        }
        let until_ms = self.now_ms + PATIENCE_MS;
        let Some(parent) = self.upward.parent().filter(|_| self.questions.open.len() < OPEN_MAX) else {
            let rows = self.own_rows(what);
            let open = Open { asker, waits_for: BTreeSet::new(), rows, answered: 1, until_ms };
            self.finish(question, open);
            return;
        };
        let waits_for = BTreeSet::from([parent]);
        let open = Open { asker, waits_for, rows: Vec::new(), answered: 0, until_ms };
        self.questions.open.insert((question, Way::Up), open);
        self.say(parent, Body::Ask { question, down: false, what: what.clone() });
    }

    /// Asks all that are heard below, and answers itself.
    fn ask_below(&mut self, question: u64, asker: Asker, what: &Question) {
        let everybody = *what == Question::Ps;
        let below = if everybody { self.below.heard() } else { Vec::new() };
        let rows = self.own_rows(what);
        if let (Question::Ended { host, by }, Some(leading)) = (what, self.leading.as_mut()) {
            self.out.push(Effect::Note(format!("{by}: nothing of host {host} runs any more")));
            leading.note_ended(*host, by);
        }
        let depth = if self.leading.is_some() { 1 } else { 3 };
        let until_ms = self.now_ms + PATIENCE_MS - depth * LEVEL_MS;
        let open = Open { asker, waits_for: below.iter().copied().collect(), rows, answered: 1, until_ms };
        if below.is_empty() {
            self.finish(question, open);
            return;
        }
        self.questions.open.insert((question, Way::Down), open);
        for host in below {
            self.say(host, Body::Ask { question, down: true, what: what.clone() });
        }
    }

    pub(super) fn hear_answer(&mut self, from: HostId, question: u64, rows: Vec<Value>, answered: u32) {
        // Who answers is above or below, never both, and that says on which of its ways the question is answered.
        let asked = |way: &Way| {
            self.questions.open.get(&(question, *way)).is_some_and(|open| open.waits_for.contains(&from))
        };
        let Some(way) = [Way::Up, Way::Down].into_iter().find(asked) else { return };
        let Some(open) = self.questions.open.get_mut(&(question, way)) else { return };
        open.waits_for.remove(&from);
        open.rows.extend(rows);
        open.answered += answered;
        if open.waits_for.is_empty() {
            if let Some(open) = self.questions.open.remove(&(question, way)) {
                self.finish(question, open);
            }
        }
    }

    /// What was not answered in time is answered with what there is.
    pub(super) fn give_up_questions(&mut self) {
        let late = |open: &Open| self.now_ms >= open.until_ms;
        let over: Vec<OnItsWay> = self
            .questions
            .open
            .iter()
            .filter(|(_, open)| late(open))
            .map(|(question, _)| *question)
            .collect();
        for on_its_way in over {
            if let Some(open) = self.questions.open.remove(&on_its_way) {
                self.finish(on_its_way.0, open);
            }
        }
    }

    fn finish(&mut self, question: u64, open: Open) {
        let Open { asker, rows, answered, .. } = open;
        match asker {
            Asker::Host(host) => drop(self.say(host, Body::Answer { question, rows, answered })),
            Asker::Here(ask) => {
                let hosts = self.membership.list.len();
                let answer = json!({"ok": true, "rows": rows, "answered": answered, "hosts": hosts});
                self.out.push(Effect::Answer(ask, answer));
            }
        }
    }

    fn own_rows(&self, what: &Question) -> Vec<Value> {
        match what {
            Question::Ps => self.worker_rows(),
            Question::Hosts => vec![self.host_rows()],
            Question::Journal => self.voter.as_ref().map(|voter| voter.lines.clone()).unwrap_or_default(),
            // Who leads has taken note of it; from anybody else the answer is empty, and it is to be said again.
            Question::Ended { host, .. } => self.leading.iter().map(|_| json!({"noted": host})).collect(),
        }
    }

    /// The workers of this host, by their ranks over all hosts.
    fn worker_rows(&self) -> Vec<Value> {
        let (Some(rank), Some(report)) = (self.rank, self.agent.report()) else { return Vec::new() };
        let standing = self.standing(rank);
        let gangs = self.job.gangs();
        let rows = report.gangs.iter().zip(&gangs).flat_map(|(gang, plan)| {
            let first = standing.first_ranks.get(plan.role).copied().unwrap_or(0);
            let role = &self.job.roles[plan.role].name;
            let host = &self.me.name;
            gang.workers.iter().map(move |worker| {
                json!({
                    "host": host, "host_rank": rank, "role": role, "rank": first + worker.rank, "pid": worker.pid,
                    "incarnation": gang.incarnation, "running": worker.running,
                    "exit": worker.exit, "step": worker.pulse.as_ref().map(|pulse| pulse.step),
                })
            })
        });
        rows.collect()
    }

    /// The job as this host sees it; the leader sees all hosts.
    fn host_rows(&self) -> Value {
        let list = &self.membership.list;
        let states = self.leading.as_ref().map(|leading| leading.host_rows(list, self.now_ms));
        let name = |id: &HostId| list.entry(*id).map_or_else(|| id.to_string(), |entry| entry.name.clone());
        json!({
            "term": self.membership.term,
            "leader": self.membership.leader.as_ref().map(name),
            "voters": list.voters.iter().map(name).collect::<Vec<_>>(),
            "frozen": self.frozen(),
            "reason": self.meeting.why.clone().filter(|_| self.rank.is_none()),
            "answered_by": self.me.name,
            "lease_ms": self.config.lease_ms,
            "list": list.stamp(),
            "hosts": states,
        })
    }
}
