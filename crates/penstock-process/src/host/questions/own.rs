//! What one host answers of itself, for whom a question is, and what somebody on this host is told.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::messages::Question;
use crate::host::questions::answer::{Answer, Part};
use crate::tree::host_list::HostId;
use crate::tree::rank_set::RankSet;
use crate::vote::storage::VoteStorage;

/// Hosts that are named in an answer; the others are counted.
const NAMED_MAX: usize = 64;

impl Question {
    /// Whether any host may answer it while nobody leads.
    pub(super) fn is_of_hosts(&self) -> bool {
        matches!(self, Self::Hosts | Self::Unsettled)
    }

    /// The host ranks that it is for; nothing for whoever leads alone.
    pub(super) fn hosts(&self, hosts: u32) -> Option<RankSet> {
        match self {
            Self::Hosts | Self::Unsettled | Self::Journal | Self::Ended { .. } | Self::Wanted { .. } => None,
            Self::Ps | Self::Unknown(_) => Some(RankSet::of(0..hosts)),
            Self::Task { hosts: chosen, .. } => Some(chosen.both(&RankSet::of(0..hosts))),
        }
    }
}

impl<S: VoteStorage> Host<S> {
    /// What this host says to a question at once; of a host without a rank nobody asks for an account.
    pub(super) fn own_answer(&self, what: &Question) -> Answer {
        let rows =
            match what {
                Question::Ps => self.worker_rows(),
                Question::Hosts => vec![
                    self.told_of_hosts(self.leading.as_deref().map(|leading| self.rows_of_hosts(leading))),
                ],
                Question::Unsettled => {
                    vec![self.told_of_hosts(
                        self.leading.as_deref().map(|leading| self.rows_of_unsettled(leading)),
                    )]
                }
                Question::Journal => self.voter.as_ref().map(|voter| voter.lines.clone()).unwrap_or_default(),
                // Who leads has taken note of it; from anybody else the answer is empty, and it is to be said again.
                Question::Ended { host, .. } => self.leading.iter().map(|_| json!({"noted": host})).collect(),
                Question::Wanted { .. } => {
                    self.leading.iter().flat_map(|leading| self.wanted_rows(leading)).collect()
                }
                Question::Task { .. } => return Answer::default(),
                Question::Unknown(_) => {
                    // The same words on every host, so that a thousand of them are one reason.
                    let why = "the question is not known there: whoever asks has another version";
                    return Answer::refusal(self.rank.into_iter().collect(), why);
                }
            };
        Answer::of(self.rank, vec![Part { head: Value::Array(rows), ..Part::default() }])
    }

    /// An answer as somebody on this host gets it: asked = answered + unheard + refused (H5).
    pub(super) fn told(&self, everybody: Option<RankSet>, answer: Answer) -> Value {
        let list = &self.membership.list;
        let asked = everybody.unwrap_or_else(|| answer.accounted());
        let unheard = asked.minus(&answer.accounted());
        let refused =
            answer.refused.iter().flat_map(|refusal| refusal.hosts.ranges().iter().cloned().flatten());
        let silent = unheard.ranges().iter().cloned().flatten().chain(refused).take(NAMED_MAX);
        let names: BTreeMap<u32, &str> =
            silent.filter_map(|rank| Some((rank, list.host(rank)?.name.as_str()))).collect();
        let plain = answer.parts.iter().all(|part| part.digest.is_empty());
        let rows = answer.parts.iter().filter(|_| plain).filter_map(|part| part.head.as_array());
        json!({
            "ok": true, "rows": rows.flatten().collect::<Vec<_>>(), "hosts": list.len(),
            "account": {"asked": asked, "answered": answer.answered, "unheard": unheard, "refused": answer.refused},
            "names": names, "parts": if plain { Vec::new() } else { answer.parts },
        })
    }

    /// The workers of this host, by their ranks over all hosts.
    fn worker_rows(&self) -> Vec<Value> {
        let (Some(rank), Some(report)) = (self.rank, self.agent.report()) else { return Vec::new() };
        let standing = self.standing(rank);
        // Who rests has the numbers of nobody; what was before is in its logs.
        let rests = self.membership.list.resting.contains(&rank);
        let gangs = self.job.gangs();
        let rows = report.gangs.iter().zip(&gangs).flat_map(|(gang, plan)| {
            let first = standing.first_ranks.get(plan.role).copied().unwrap_or(0);
            let role = &self.job.roles[plan.role].name;
            let host = &self.me.name;
            gang.workers.iter().filter(move |worker| worker.running || !rests).map(move |worker| {
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
    fn told_of_hosts(&self, rows: Option<Vec<Value>>) -> Value {
        let list = &self.membership.list;
        let name = |id: &HostId| list.entry(*id).map_or_else(|| id.to_string(), |entry| entry.name.clone());
        json!({
            "term": self.membership.term,
            "leader": self.membership.leader.as_ref().map(name),
            "voters": list.voters.iter().map(name).collect::<Vec<_>>(),
            "frozen": self.frozen(),
            "reason": self.meeting.why.clone().filter(|_| self.rank.is_none()),
            "answered_by": self.me.name,
            "lease_ms": self.config.lease_ms,
            "heartbeat_ms": self.heartbeat_ms(),
            "list": list.stamp(),
            "hosts": rows,
        })
    }
}
