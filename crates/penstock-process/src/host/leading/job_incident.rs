//! A failure over all hosts, as whoever leads knows it: what came first, on which host, what its ranks said last, what was decided, and how
//! long each part of that took. It goes down the tree, so that every host has it on its disk before the job may end.
//!
//! It is told again when more is known, a few times: when it is decided what follows, and as the next life begins.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::coordinator::history::GangHistory;
use crate::coordinator::messages::{Order, Orders};
use crate::coordinator::verdict::{Action, Failure};
use crate::coordinator::view::HostLoss;
use crate::host::leading::Leading;
use crate::host::messages::{Body, Header};
use crate::host::{Effect, Host};
use crate::job::state::wall_s;
use crate::lease::grant;
use crate::logs::stderr_tail::{RankStderr, StderrTail};
use crate::tree::host_list::HostId;
use crate::tree::rank_set::RankSet;
use crate::tree::summary::{FAILURES_MAX, FirstFailures, LifeSummary};
use crate::vote::storage::VoteStorage;

/// Hosts that are named as lost; of the others the number is told.
const LOST_MAX: usize = FAILURES_MAX;
/// Failures and lost hosts of which the last lines are in it, the first ones.
const WORDS_OF: usize = 4;

/// One failure, from when it is noticed until the next life makes steps.
#[derive(Debug)]
pub(in crate::host) struct JobIncident {
    failure: Failure,
    /// When the life that failed was prepared: hosts that were lost before have nothing to do with it.
    prepared_ms: u64,
    at: f64,
    failures: FirstFailures,
    lost: Vec<Loss>,
    words: Vec<Value>,
    times: Times,
    /// What was told last; nothing before it was told.
    told: Option<Stage>,
}

/// A host that the life lost.
#[derive(Debug)]
struct Loss {
    loss: HostLoss,
    was: Option<HostId>,
    words: Vec<RankStderr>,
}

/// Moments, in the coordinator's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    noticed_ms: u64,
    /// Nothing of the life was left.
    ended_ms: Option<u64>,
    ordered_ms: Option<u64>,
    prepared_ms: Option<u64>,
    started_ms: Option<u64>,
    first_step_ms: Option<u64>,
}

/// What makes it worth telling again.
#[derive(Debug, PartialEq, Eq)]
struct Stage {
    decided: (Action, String),
    times: Times,
    took_over: Vec<Value>,
    failures: u64,
    words_bytes: usize,
}

impl JobIncident {
    fn words_bytes(&self) -> usize {
        bytes_of(&self.words)
    }
}

impl Loss {
    fn words_bytes(&self) -> usize {
        self.words.iter().map(|one| one.text.len()).sum()
    }
}

/// How much was said.
fn bytes_of(words: &[Value]) -> usize {
    words.iter().filter_map(|one| one["text"].as_str()).map(str::len).sum()
}

impl<S: VoteStorage> Host<S> {
    /// Takes note of lives that failed and of what follows, and tells all hosts what is new.
    pub(super) fn tell_incidents(&mut self, leading: &Leading, orders: &Orders) {
        let mut incidents = std::mem::take(&mut self.incidents);
        for order in &orders.gangs {
            let Some(history) = leading.decider.history().gangs.get(order.gang) else { continue };
            let Some(failure) = history.failures.last() else { continue };
            let known = incidents.get(&order.gang).map(|known| known.failure.incarnation);
            if known != Some(failure.incarnation) {
                if history.failure().is_none() && !order.incident {
                    continue;
                }
                incidents.insert(order.gang, self.new_incident(failure, history));
            }
            let Some(incident) = incidents.get_mut(&order.gang) else { continue };
            incident.failure.clone_from(failure);
            if let Some(stage) = self.follow_incident(leading, incident, order, history) {
                let document = self.incident_document(incident, &stage, order.gang);
                incident.told = Some(stage);
                self.pass_incident_on(Arc::new(document));
            }
        }
        self.incidents = incidents;
    }

    fn new_incident(&self, failure: &Failure, history: &GangHistory) -> JobIncident {
        let noticed_ms = self.clock.coordinator_ms(self.now_ms);
        let is_current = history.incarnation == Some(failure.incarnation);
        JobIncident {
            failure: failure.clone(),
            prepared_ms: history.prepared_ms.filter(|_| is_current).unwrap_or(0),
            at: wall_s() - noticed_ms.saturating_sub(failure.at_ms) as f64 / 1000.0,
            failures: FirstFailures::default(),
            lost: Vec::new(),
            words: Vec::new(),
            times: Times { noticed_ms, ..Times::default() },
            told: None,
        }
    }

    /// Adds what is known by now; where that is news, what is to be told.
    fn follow_incident(
        &self,
        leading: &Leading,
        incident: &mut JobIncident,
        order: &Order,
        history: &GangHistory,
    ) -> Option<Stage> {
        let now_ms = self.clock.coordinator_ms(self.now_ms);
        let life = incident.failure.incarnation;
        let lives = self.lives_of(order.gang);
        let failed = lives.iter().find(|known| known.incarnation == Some(life));
        if let Some(failed) = failed.filter(|failed| failed.failures.count() >= incident.failures.count()) {
            incident.failures = failed.failures.clone();
            self.note_words(incident, order.gang);
        }
        self.note_losses(leading, incident, order.gang);
        let still = failed.is_none_or(|failed| failed.running == 0 && failed.orphans == 0);
        let over = history.outcome.is_some() || history.incarnation > Some(life);
        if still || over {
            incident.times.ended_ms.get_or_insert(now_ms);
        }
        if history.incarnation > Some(life) {
            let times = &mut incident.times;
            times.ordered_ms = times.ordered_ms.or(history.ordered_ms);
            times.prepared_ms = times.prepared_ms.or(history.prepared_ms);
            let next = lives.iter().find(|known| known.incarnation == history.incarnation);
            let runs = |next: &&LifeSummary| next.running > 0 && next.running == next.workers;
            let begun = times.prepared_ms.and(next.filter(runs));
            if let Some(next) = begun {
                times.started_ms.get_or_insert(now_ms);
                times.first_step_ms = times.first_step_ms.or(next.progress.stepped_ms);
            }
        }
        let action = match &order.action {
            Action::Wait { .. } => Action::Wait { until_ms: None },
            other => other.clone(),
        };
        let (decided, times) = ((action, order.reason.clone()), incident.times);
        let took_over = self.took_over(incident);
        // What becomes of the next life is decided for other reasons.
        let began = |told: &&Stage| matches!(told.decided.0, Action::Prepare { .. } | Action::Start { .. });
        let decided = incident.told.as_ref().filter(began).map_or(decided, |told| told.decided.clone());
        let words_bytes = incident.words_bytes() + incident.lost.iter().map(Loss::words_bytes).sum::<usize>();
        let failures = incident.failures.count();
        let stage = Stage { decided, times, took_over, failures, words_bytes };
        (times.ended_ms.is_some() && incident.told.as_ref() != Some(&stage)).then_some(stage)
    }

    /// The lives of a gang, as all hosts that are heard tell.
    fn lives_of(&self, gang: usize) -> &[LifeSummary] {
        let merged = &self.below.merged;
        let Some(plan) = self.plans.get(gang) else { return &[] };
        let summary = match plan.alone {
            Some(alone) => merged.alone.get(&plan.role).and_then(|ranks| ranks.get(&alone.rank)),
            None => merged.gangs.get(plan.role),
        };
        summary.map_or(&[], |summary| &summary.lives)
    }

    /// What the ranks said last that failed first.
    fn note_words(&self, incident: &mut JobIncident, gang: usize) {
        let list = &self.membership.list;
        let role = self.plans.get(gang).map_or("", |plan| &self.job.roles[plan.role].name);
        let said = |(host_rank, rank): (u32, u32)| {
            let entry = list.host(host_rank)?;
            let text = self.stderr_of(entry.id)?.of_rank(role, rank, incident.failure.incarnation)?;
            Some(json!({"host": entry.name, "role": role, "rank": rank, "text": text}))
        };
        let first = incident.failures.first.iter().map(|failure| (failure.host_rank, failure.rank));
        let words: Vec<Value> = first.take(WORDS_OF).filter_map(said).collect();
        // Who has begun another life has forgotten those of this one.
        if bytes_of(&words) >= incident.words_bytes() {
            incident.words = words;
        }
    }

    fn note_losses(&self, leading: &Leading, incident: &mut JobIncident, gang: usize) {
        let life = incident.failure.incarnation;
        let alone = self.plans.get(gang).and_then(|plan| plan.alone);
        let known: RankSet = incident.lost.iter().map(|lost| lost.loss.host_rank).collect();
        let concerns = |loss: &&HostLoss| {
            let here = alone.is_none_or(|alone| alone.host_rank == loss.host_rank);
            here && loss.at_ms >= incident.prepared_ms && incident.prepared_ms > 0
        };
        let new = leading.losses.values().filter(concerns).filter(|loss| !known.contains(loss.host_rank));
        let new: Vec<Loss> = new
            .map(|loss| {
                let was = leading.lost_ids.get(&loss.host_rank).copied();
                let words = was.and_then(|host| self.stderr_of(host)).map(StderrTail::all);
                let mut words = words.unwrap_or_default();
                words.retain(|one| one.incarnation == life);
                Loss { loss: loss.clone(), was, words }
            })
            .collect();
        incident.lost.extend(new);
        incident.lost.sort_by_key(|lost| (lost.loss.heard_ms, lost.loss.host_rank));
    }

    fn stderr_of(&self, host: HostId) -> Option<&StderrTail> {
        if host == self.me.id { Some(self.neighbours.own()) } else { self.neighbours.of_host(host) }
    }

    /// Which hosts have the host ranks now that were lost.
    fn took_over(&self, incident: &JobIncident) -> Vec<Value> {
        let list = &self.membership.list;
        let now = |lost: &Loss| {
            let rank = lost.loss.host_rank;
            let entry = list.host(rank).filter(|_| !list.vacant.contains(&rank))?;
            let back = Some(entry.id) == lost.was;
            (!list.resting.contains(&rank))
                .then(|| json!({"host_rank": rank, "from": lost.loss.name, "to": entry.name, "back": back}))
        };
        incident.lost.iter().filter_map(now).collect()
    }

    fn incident_document(&self, incident: &JobIncident, stage: &Stage, gang: usize) -> Value {
        let JobIncident { failure, failures, times, .. } = incident;
        let (list, plan) = (&self.membership.list, &self.plans[gang]);
        let role = &self.job.roles[plan.role];
        let host = |rank: u32| list.host(rank).map(|entry| entry.name.as_str());
        let first: Vec<Value> = failures
            .first
            .iter()
            .map(|failed| {
                let ended = match (&failed.exit, failed.of_lease) {
                    (_, true) => "was ended, because the lease of its host ended".to_owned(),
                    (Some(exit), false) => exit.to_string(),
                    (None, false) => "was lost with its agent".to_owned(),
                };
                json!({
                    "rank": failed.rank, "host": host(failed.host_rank), "host_rank": failed.host_rank, "ended": ended,
                    "at_ms": failed.at_ms, "within_ms": failed.within_ms, "of_connection": failed.of_connection, "of_lease": failed.of_lease,
                })
            })
            .collect();
        let unheard_ms = grant::unheard_ms(self.config.lease_ms);
        let lost: Vec<Value> = incident
            .lost
            .iter()
            .take(LOST_MAX)
            .enumerate()
            .map(|(place, lost)| {
                let HostLoss { host_rank, name, what, heard_ms, at_ms } = &lost.loss;
                let told = place < WORDS_OF;
                json!({
                    "host": name, "host_rank": host_rank, "what": what, "heard_ms": heard_ms, "at_ms": at_ms,
                    "unheard_ms": (heard_ms + unheard_ms).min(*at_ms), "within_ms": self.heartbeat_ms(),
                    "stderr": if told { lost.words.as_slice() } else { &[] },
                })
            })
            .collect();
        let gone =
            |id: HostId| incident.lost.iter().find(|lost| lost.was == Some(id)).map(|lost| &lost.loss.name);
        let name = |id: HostId| list.entry(id).map(|entry| &entry.name).or_else(|| gone(id)).cloned();
        let own = (self.me.id, self.own_clock());
        let clocks = [own].into_iter().chain(self.neighbours.clocks());
        let clocks: Vec<Value> = clocks
            .map(|(id, clock)| {
                let ahead_ms = clock.wall_ms - own.1.wall_ms;
                json!({"host": name(id), "offset_ms": clock.offset_ms, "within_ms": clock.within_ms, "time_of_day_ahead_ms": ahead_ms})
            })
            .collect();
        json!({
            "of": "all hosts", "role": role.name, "lone_rank": plan.alone.map(|alone| alone.rank),
            "incarnation": failure.incarnation, "at": incident.at, "first_cause": failure.what,
            "cause": failure.cause, "rank": failure.rank, "step": failure.step, "command": role.command,
            "verdict": stage.decided.0, "reason": stage.decided.1,
            "failures": first, "more_failures": failures.more,
            "lost_hosts": lost, "more_lost_hosts": incident.lost.len().saturating_sub(LOST_MAX),
            "words": incident.words, "clocks": clocks, "took_over": stage.took_over,
            "hosts": list.active(), "hosts_named": list.len(), "written_by": self.me.name,
            "lease_ms": self.config.lease_ms, "wall_ms": own.1.wall_ms,
            "times": {
                "failed_ms": failure.at_ms, "noticed_ms": times.noticed_ms, "ended_ms": times.ended_ms,
                "ordered_ms": times.ordered_ms, "prepared_ms": times.prepared_ms, "started_ms": times.started_ms,
                "first_step_ms": times.first_step_ms,
            },
        })
    }

    /// From the leader, by way of our parent.
    pub(in crate::host) fn hear_incident(&mut self, from: HostId, header: Header, incident: Arc<Value>) {
        let above = self.upward.parent() == Some(from) || self.membership.leader == Some(from);
        if above && header.term >= self.membership.term {
            self.pass_incident_on(incident);
        }
    }

    fn pass_incident_on(&mut self, incident: Arc<Value>) {
        for child in self.below.heard() {
            self.say(child, Body::Incident(Arc::clone(&incident)));
        }
        self.out.push(Effect::Incident(incident));
    }
}
